// Before all other scripts of the page. While Gradio loads, a sign of work counts the seconds in every frame, and it goes on
// counting after it has gone (gradio 6.31): a twelfth of a core for as long as a page is open. So that it never begins, no
// frame is given to measure time before the page's title is there.
{
  const ask = window.requestAnimationFrame;
  let there = false;
  window.requestAnimationFrame = (frame) => {
    there ||= document.querySelector(".md-header") !== null;
    return there || !String(frame).includes("performance.now()") ? ask(frame) : 0;
  };
}
