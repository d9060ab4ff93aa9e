// Follows the branch: replaces the parts marked with data-live when there are new commits. The page works without it.
"use strict";

(() => {
  // Milliseconds between two reads of the page; longer after a slow one, so that an open page keeps the server idle.
  const PAUSE = 250;
  const IDLE = 4;
  const live = () => document.querySelector("[data-live]");
  const status = document.getElementById("status");
  if (!live() || !window.EventSource) return;

  let head = live().dataset.head;
  let wanted = head;
  let reading = false;

  // The focus stays on the same link of the new part, if it has one.
  const replace = (fresh) => {
    const old = live();
    const focused = old.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    const part = document.importNode(fresh, true);
    old.replaceWith(part);
    if (focused) {
      const same = [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused);
      if (same) same.focus({ preventScroll: true });
    }
    head = part.dataset.head;
  };

  const read = async () => {
    if (reading || wanted === head) return;
    reading = true;
    const asked = wanted;
    const begun = performance.now();
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.querySelector("[data-live]");
      // What has not changed keeps its selection, and is not announced.
      if (fresh && fresh.innerHTML === live().innerHTML) {
        head = fresh.dataset.head;
      } else if (fresh) {
        replace(fresh);
        status.textContent = "Updated: there are new commits.";
      }
      // The page may be newer than the event.
      if (wanted === asked) wanted = head;
    } catch (error) {
      status.textContent = `Not updated (${error.message}): reload the page.`;
      wanted = head;
    }
    setTimeout(() => {
      reading = false;
      read();
    }, Math.max(PAUSE, IDLE * (performance.now() - begun)));
  };

  // A hidden page has no connection: browsers open only six to one host.
  let events = null;
  const follow = () => {
    if (document.visibilityState !== "visible" || events) return;
    events = new EventSource("/events");
    events.addEventListener("head", (event) => {
      wanted = event.data;
      read();
    });
    events.addEventListener("error", () => {
      const isClosed = events && events.readyState === EventSource.CLOSED;
      status.textContent = isClosed
        ? "The connection is lost. Reload the page; if the program was started again, open its new URL."
        : "The connection is lost; trying again.";
    });
    events.addEventListener("open", () => {
      status.textContent = "";
    });
  };
  const rest = () => {
    if (events) events.close();
    events = null;
  };
  document.addEventListener("visibilitychange", () => {
    if (document.visibilityState === "visible") follow();
    else rest();
  });
  addEventListener("pagehide", rest);
  addEventListener("pageshow", follow);
  follow();
})();
