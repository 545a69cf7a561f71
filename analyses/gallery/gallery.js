"use strict";
// Which verdicts are shown, kept in the address (#show=part,fails) so that a link opens the same view; larger figures.
(() => {
  const boxes = [...document.querySelectorAll("input[name=verdict]")];
  const claims = [...document.querySelectorAll(".claim")];

  const show = () => {
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
    for (const claim of claims) claim.hidden = !wanted.has(claim.dataset.verdict);
    for (const article of document.querySelectorAll("article")) {
      const none = !article.querySelector(".claim:not([hidden])");
      article.querySelector(".beside").hidden = none;
      article.querySelector(".nothing").hidden = !none;
    }
    const count = claims.filter((claim) => !claim.hidden).length;
    document.getElementById("shown").textContent = `${count} of ${claims.length} claims shown`;
  };

  const fromAddress = () => {
    const said = new URLSearchParams(location.hash.slice(1)).get("show");
    if (said === null) return;
    const wanted = new Set(said.split(","));
    for (const box of boxes) box.checked = wanted.has(box.value);
  };

  const toAddress = () => {
    const all = boxes.every((box) => box.checked);
    const wanted = boxes.filter((box) => box.checked).map((box) => box.value).join(",");
    history.replaceState(null, "", all ? location.href.split("#")[0] : `#show=${wanted}`);
  };

  for (const box of boxes) box.addEventListener("change", () => { show(); toAddress(); });
  window.addEventListener("hashchange", () => { fromAddress(); show(); });
  for (const zoom of document.querySelectorAll(".zoom")) {
    zoom.addEventListener("click", () => {
      const wide = zoom.closest(".beside").classList.toggle("wide");
      zoom.setAttribute("aria-pressed", String(wide));
    });
  }
  document.getElementById("tools").hidden = false;
  fromAddress();
  show();
})();
