export const follow = async (path, list) => {
  const sent = await fetch(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" });
  const { data } = await sent.json();
  const stream = new EventSource(data.follow);
  for (const state of ["running", "waiting", "succeeded", "failed"]) {
    stream.addEventListener(state, (event) => {
      const told = JSON.parse(event.data), line = document.createElement("li");
      line.textContent = told.output ? `${told.status}: ${told.output.parcel}` : told.status;
      list.append(line);
      if (state === "succeeded" || state === "failed") stream.close();
    });
  }
};
