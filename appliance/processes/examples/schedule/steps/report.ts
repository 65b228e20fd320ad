export default async function () {
  console.log("the day begins");
  return { at: new Date().toISOString() };
}
