// Copies a text, which may be still to come; what its button is to say then.
async function copied(text, done = "Link copied", failed = "Not copied: open it") {
  try {
    await navigator.clipboard.writeText(await text);
    return done;
  } catch {
    return failed;
  }
}

// Puts prompt, policy and settings into the address and copies it. Other parameters of the address stay, except a
// batch or race.
async function copyLink(longest, label, status, prompt, policy, ...settings) {
  const asked = { ...notPlays(), prompt, with_policy: policy };
  SETTINGS.forEach((name, i) => asked[name] = settings[i]);
  asked.with_pool = document.querySelector(".md-pool-line").dataset.pool;
  const say = (kind, role, text) =>
    `<p class="md-status md-${kind}"><span role="${role}">${text}</span><span></span></p>`;

  const link = new URL(location.href);
  link.search = changed({ ...asked, tab: null, batch: null, race: null });
  if (link.search.length > longest) {
    const text = `The prompt is too long for a link: ${link.search.length.toLocaleString("en")} characters in the ` +
      `address. Links longer than ${longest.toLocaleString("en")} characters may be cut off.`;
    return [label, say("error", "alert", text)];
  }
  try {
    await navigator.clipboard.writeText(link.href);
    address({ ...asked, tab: firstTab() });
    return ["Link copied", status];
  } catch {
    address({ ...asked, tab: null, batch: null, race: null });
    return [label, say("idle", "status", "The link is in the address bar; this browser does not let the page copy it.")];
  }
}
