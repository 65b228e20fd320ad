// The explorer: swagger-ui on our own OpenAPI document. The key stays in this page's memory.
window.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("explorer");
  if (!window.SwaggerUIBundle) {
    place.textContent = "The explorer's files are not installed here. The contract itself is /api-docs/openapi.json.";
    return;
  }
  window.SwaggerUIBundle({
    url: "/api-docs/openapi.json",
    domNode: place,
    deepLinking: true,
    docExpansion: "none", // every family is seen; one opens those that one is after
    defaultModelsExpandDepth: 0,
    displayRequestDuration: true,
    filter: true,
    persistAuthorization: false,
    validatorUrl: null,
    tryItOutEnabled: true,
    presets: [window.SwaggerUIBundle.presets.apis],
    layout: "BaseLayout",
  });
});
