// The two experiments that are chosen, across pages of the list, and the notes.

function chooseTwo(element, trigger) {
  let chosen = [];

  function show() {
    element.querySelectorAll("[data-experiment]").forEach((box) => box.checked = chosen.includes(box.dataset.experiment));
    const link = element.querySelector(".md-link-button");
    const said = element.querySelector(".md-compare [role=status]");
    if (!link) return;
    if (chosen.length === 2) {
      link.href = `result/comparison/${chosen.map(encodeURIComponent).join("/")}`;
      link.removeAttribute("aria-disabled");
      said.textContent = "B, chosen last, is compared with A, chosen first.";
    } else {
      link.removeAttribute("href");
      link.setAttribute("aria-disabled", "true");
      said.textContent = chosen.length ? "Choose another one." : "Choose two experiments.";
    }
  }

  element.addEventListener("change", ({ target }) => {
    const id = target.dataset?.experiment;
    if (!id) return;
    chosen = chosen.filter((one) => one !== id);
    if (target.checked) chosen = [...chosen, id].slice(-2);
    show();
  });
  element.addEventListener("click", ({ target }) => {
    const note = target.closest("[data-note]");
    if (note) trigger("click", { experiment: note.dataset.note });
  });
  new MutationObserver((changes) => {
    if (changes.some(({ addedNodes }) => [...addedNodes].some((node) => node.querySelector?.("[data-experiment]")))) show();
  }).observe(element, { childList: true, subtree: true });
}
