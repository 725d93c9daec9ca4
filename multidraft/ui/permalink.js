// Puts prompt, policy and settings into the address and copies it. Parameters of others in the address are kept.
async (label, status, prompt, policy, spec, ...settings) => {
  const names = ["max_new_tokens", "temperature", "top_p", "top_k", "draft_length", "seed"];
  const url = new URL(location.href);
  const query = url.searchParams;
  query.set("prompt", prompt);
  query.set("policy", spec.trim() || policy);
  names.forEach((name, i) => settings[i] === null ? query.delete(name) : query.set(name, settings[i]));
  query.set("with_pool", document.querySelector(".md-pool-line").dataset.pool);
  if (query.has("tab")) query.set("tab", "play");
  const say = (kind, role, text) => `<p class="md-status md-${kind}" role="${role}">${text}</p>`;
  if (url.search.length > @longest@) {
    const text = `The prompt is too long for a link: ${url.search.length.toLocaleString("en")} characters in the ` +
      "address, at most @longest@ are sure to arrive. Download the run as JSON instead.";
    return [label, say("error", "alert", text)];
  }
  history.replaceState(history.state, "", url);
  try {
    await navigator.clipboard.writeText(url.href);
    return ["Link copied", status];
  } catch {
    return [label, say("idle", "status", "The link is in the address bar; this browser does not let the page copy it.")];
  }
}
