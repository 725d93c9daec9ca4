// The two experiments that are chosen, across pages of the list, and the notes. A is the older one, whichever was chosen
// first: what has changed is read forwards. Whether they can be compared is asked before the link is followed.

function chooseTwo(element, trigger) {
  const KEPT = "multidraft-compared"; // so that they are still chosen after a look at one
  let chosen = JSON.parse(kept(KEPT) || "{}"); // when each was made, by its id, the one chosen last at the end

  function show() {
    const inOrder = Object.keys(chosen).sort((one, other) => chosen[one].localeCompare(chosen[other]));
    element.querySelectorAll("[data-experiment]").forEach((box) => {
      box.checked = box.dataset.experiment in chosen;
      box.nextElementSibling.textContent = inOrder.length === 2 ? "AB"[inOrder.indexOf(box.dataset.experiment)] ?? "" : "";
    });
    const link = element.querySelector(".md-link-button");
    const said = element.querySelector(".md-compare [role=status]");
    if (!link) return;
    if (inOrder.length === 2) {
      link.href = `result/comparison/${inOrder.map(encodeURIComponent).join("/")}`;
      link.removeAttribute("aria-disabled");
      said.textContent = "B, the newer one, is compared with A, the older one.";
      ask(link, said, link.href);
    } else {
      refuse(link, said, inOrder.length ? "Choose another one." : "Choose two results.");
    }
  }

  function refuse(link, said, why) {
    link.removeAttribute("href");
    link.setAttribute("aria-disabled", "true");
    said.textContent = why;
  }

  async function ask(link, said, address) {
    const answer = await fetch(`${address}.csv`).catch(() => null); // whoever follows the link hears of it
    const why = answer?.status === 422 ? (await answer.json()).detail : "";
    if (why && link.href === address) refuse(link, said, why);
  }

  element.addEventListener("change", ({ target }) => {
    const id = target.dataset?.experiment;
    if (!id) return;
    const others = Object.entries(chosen).filter(([one]) => one !== id);
    chosen = Object.fromEntries(target.checked ? [...others.slice(-1), [id, target.dataset.made]] : others);
    keep(KEPT, JSON.stringify(chosen));
    show();
  });
  tell("note", element, trigger);
  new MutationObserver((changes) => {
    if (changes.some(({ addedNodes }) => [...addedNodes].some((node) => node.querySelector?.("[data-experiment]")))) show();
  }).observe(element, { childList: true, subtree: true });
}
