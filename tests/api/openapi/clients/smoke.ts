// Calls an appliance with the generated types: node smoke.js BASE_URL HOST KEY PROCESS COLLECTION
import createClient from "openapi-fetch";
import type { components, paths } from "./schema";

declare const process: { argv: string[] };

function check(statement: boolean, what: string): asserts statement {
  if (!statement) throw new Error(what);
}

const [baseUrl, Host, key, process_id, collection] = process.argv.slice(2) as [string, string, string, string, string];
const client = createClient<paths>({ baseUrl, headers: { Host, "X-API-Key": key } });

const listed = await client.GET("/api/v1/processes", { params: { query: { limit: 500 } } });
const ids: string[] = listed.data?.data.map((each) => each.id) ?? [];
check(ids.includes(process_id), "the process is not listed");

const params = { path: { process_id }, query: { wait: 30 } };
const execution = await client.POST("/api/v1/processes/{process_id}/execute", { params, body: {} });
const status: components["schemas"]["ExecutionView"]["status"] | undefined = execution.data?.data.status;
check(status === "succeeded", `the execution is ${status}`);

const body = { number: "from-typescript", total: 4 };
const created = await client.POST("/api/v1/datapool/{collection}/entities", { params: { path: { collection } }, body });
const entity_id = String(created.data?.data["id"]);
const entity = await client.GET("/api/v1/datapool/{collection}/entities/{entity_id}", { params: { path: { collection, entity_id } } });
check(entity.data?.data["total"] === 4, "the entity is not what was stored");

const path = { collection, entity_id: "ent_000000000000000000000" };
const refused = await client.GET("/api/v1/datapool/{collection}/entities/{entity_id}", { params: { path } });
check(refused.error !== undefined && "error" in refused.error && refused.error.error.code === "not_found", "no refusal");
// @ts-expect-error: the status of an execution is none of these
const wrong: components["schemas"]["ExecutionView"]["status"] = "nonsense";
check(wrong !== undefined, "");
console.log("smoke test passed");
