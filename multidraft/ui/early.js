// Before all other scripts of the page. While Gradio loads, a sign of work counts the seconds in every frame, and it goes on
// counting after it has gone (gradio 6.31): 8 % of a core for as long as a page is open. So that it never begins, no frame is
// given to measure time before the page's title is there.
{
  const ask = window.requestAnimationFrame, PATIENCE_MS = 60_000;
  let there = false;
  window.requestAnimationFrame = (frame) => {
    there ||= document.querySelector(".md-header") !== null || performance.now() > PATIENCE_MS;
    return there || !String(frame).includes("performance.now()-") ? ask(frame) : 0;
  };
}
