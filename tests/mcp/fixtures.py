"""The fixtures that the conformance suite expects, on our own stack: edge, admission, transports and sealing."""

import base64
import json
from typing import Any

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc000000301010018dd8db00000000049454e44ae426082"
    )
).decode()
WAV = base64.b64encode(b"RIFF$\0\0\0WAVEfmt \x10\0\0\0\x01\0\x01\0\x40\x1f\0\0\x80\x3e\0\0\x02\0\x10\0data\0\0\0\0").decode()
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {"address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"}}}},
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
PAUSE = 0.05


def text(content: str) -> types.TextContent:
    return types.TextContent(type="text", text=content)


def image() -> types.ImageContent:
    return types.ImageContent(type="image", data=PNG, mime_type="image/png")


def embedded(uri: str, content: str, media_type: str = "text/plain") -> types.EmbeddedResource:
    return types.EmbeddedResource(type="resource", resource=types.TextResourceContents(uri=uri, mime_type=media_type, text=content))


CONTENTS: dict[str, list[Any]] = {
    "test_simple_text": [text("This is a simple text response for testing.")],
    "test_image_content": [image()],
    "test_audio_content": [types.AudioContent(type="audio", data=WAV, mime_type="audio/wav")],
    "test_embedded_resource": [embedded("test://embedded-resource", "This is an embedded resource content.")],
    "test_multiple_content_types": [
        text("Multiple content types test:"), image(),
        embedded("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
    ],
    "json_schema_2020_12_tool": [text("fits")],
}  # fmt: skip
TOOLS = (*CONTENTS, "test_tool_with_logging", "test_tool_with_progress", "test_error_handling")


class Fixtures:
    """Handlers of the suite's fixtures, in place of our own."""

    def add_to(self, server: Server[Any]) -> None:
        handlers: tuple[tuple[str, Any, Any], ...] = (
            ("tools/list", types.PaginatedRequestParams, self.list_tools),
            ("tools/call", types.CallToolRequestParams, self.call_tool),
            ("resources/list", types.PaginatedRequestParams, self.list_resources),
            ("resources/templates/list", types.PaginatedRequestParams, self.list_templates),
            ("resources/read", types.ReadResourceRequestParams, self.read_resource),
            ("resources/subscribe", types.SubscribeRequestParams, self.subscribe),
            ("resources/unsubscribe", types.UnsubscribeRequestParams, self.subscribe),
            ("prompts/list", types.PaginatedRequestParams, self.list_prompts),
            ("prompts/get", types.GetPromptRequestParams, self.get_prompt),
            ("completion/complete", types.CompleteRequestParams, self.complete),
            ("logging/setLevel", types.SetLevelRequestParams, self.subscribe),
        )
        for method, params, handler in handlers:
            server.add_request_handler(method, params, handler)
        server.get_tool_input_schema = None

    async def list_tools(self, ctx: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name, description=f"The fixture {name}.",
                    input_schema=SCHEMA if name == "json_schema_2020_12_tool" else {"type": "object", "properties": {}},
                )
                for name in TOOLS
            ]
        )  # fmt: skip

    async def call_tool(self, ctx: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name in CONTENTS:
            return types.CallToolResult(content=CONTENTS[params.name])
        if params.name == "test_error_handling":
            return types.CallToolResult(content=[text("This tool intentionally returns an error for testing")], is_error=True)
        messages = ("Tool execution started", "Tool processing data", "Tool execution completed")
        for number, message in enumerate(messages):
            if params.name == "test_tool_with_logging":
                line = types.LoggingMessageNotificationParams(level="info", data=message)
                await ctx.session.send_notification(types.LoggingMessageNotification(params=line), ctx.request_id)
            elif params.name == "test_tool_with_progress":
                token = (ctx.meta or {}).get("progress_token")
                await ctx.session.send_progress_notification(token, number * 50.0, 100.0, related_request_id=str(ctx.request_id))
            else:
                raise MCPError(types.INVALID_PARAMS, f"there is no fixture {params.name}")
            await anyio.sleep(PAUSE)
        return types.CallToolResult(content=[text("done")])

    async def list_resources(self, ctx: Any, params: Any) -> types.ListResourcesResult:
        names = ("static-text", "static-binary", "watched-resource")
        return types.ListResourcesResult(
            resources=[types.Resource(uri=f"test://{name}", name=name, description=f"The fixture {name}.") for name in names]
        )

    async def list_templates(self, ctx: Any, params: Any) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(uri_template="test://template/{id}/data", name="template", description="By id.")
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def read_resource(self, ctx: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        uri, resource_id = params.uri, params.uri.removeprefix("test://template/").removesuffix("/data")
        if uri == "test://static-binary":
            content: Any = types.BlobResourceContents(uri=uri, mime_type="image/png", blob=PNG)
        elif uri.startswith("test://template/"):
            body = json.dumps({"id": resource_id, "templateTest": True, "data": f"Data for ID: {resource_id}"})
            content = types.TextResourceContents(uri=uri, mime_type="application/json", text=body)
        else:
            body = "This is the content of the static text resource."
            content = types.TextResourceContents(uri=uri, mime_type="text/plain", text=body)
        return types.ReadResourceResult(contents=[content])

    async def subscribe(self, ctx: Any, params: Any) -> types.EmptyResult:
        return types.EmptyResult()

    async def list_prompts(self, ctx: Any, params: Any) -> types.ListPromptsResult:
        arguments_by_name = {
            "test_simple_prompt": (), "test_prompt_with_arguments": ("arg1", "arg2"),
            "test_prompt_with_embedded_resource": ("resourceUri",), "test_prompt_with_image": (),
        }  # fmt: skip
        prompts = [
            types.Prompt(
                name=name, description=f"The fixture {name}.",
                arguments=[types.PromptArgument(name=each, description=each, required=True) for each in names],
            )
            for name, names in arguments_by_name.items()
        ]  # fmt: skip
        return types.ListPromptsResult(prompts=prompts)

    async def get_prompt(self, ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        arguments = params.arguments or {}
        contents: dict[str, list[Any]] = {
            "test_simple_prompt": [text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments": [
                text(f"Prompt with arguments: arg1='{arguments.get('arg1')}', arg2='{arguments.get('arg2')}'")
            ],
            "test_prompt_with_embedded_resource": [
                embedded(arguments.get("resourceUri", ""), "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image": [image(), text("Please analyze the image above.")],
        }
        messages = [types.PromptMessage(role="user", content=content) for content in contents[params.name]]
        return types.GetPromptResult(messages=messages)

    async def complete(self, ctx: Any, params: Any) -> types.CompleteResult:
        return types.CompleteResult(completion=types.Completion(values=["paris", "park"], total=2, has_more=False))
