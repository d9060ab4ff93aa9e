// Follows the branch: replaces the parts marked with data-live when there are new commits. The page works without it.
"use strict";

(() => {
  // Milliseconds between two reads of the page; longer after a slow one, so that an open page keeps the server idle.
  const PAUSE = 250;
  const IDLE = 4;
  // Milliseconds that a notice of an update stays.
  const NOTICE = 10000;
  const live = () => document.querySelector("[data-live]");
  const status = document.getElementById("status");
  if (!live() || !window.EventSource) return;

  // Milliseconds between two reads of a part that changes without commits, such as the health.
  const poll = Number(live().dataset.poll ?? 0);
  let head = live().dataset.head;
  let wanted = head;
  let reading = false;

  const links = (part) => [...part.querySelectorAll("a")];
  // What a link stands for: the field of its row, else its target.
  const meaning = (link) => link.closest("tr")?.cells[0].textContent ?? link.getAttribute("href");

  // Remembers a link of a part, to find it in the new one.
  const place = (part, link) => {
    const same = links(part).filter((other) => meaning(other) === meaning(link));
    return { meaning: meaning(link), number: same.indexOf(link), at: links(part).indexOf(link) };
  };
  const find = (part, place) => {
    const same = links(part).filter((link) => meaning(link) === place.meaning);
    return same[place.number] ?? same.at(-1) ?? links(part)[place.at] ?? links(part).at(-1);
  };
  const top = (element) => element.getBoundingClientRect().top;

  // The focus stays on its link. The first link on the screen stays where it is, except at the top of the page, where new
  // commits come into view.
  const replace = (fresh) => {
    const old = live();
    const active = document.activeElement;
    const focused = old.contains(active) && active.localName === "a" ? place(old, active) : null;
    const first = scrollY > 0 ? links(old).find((link) => top(link) >= 0) : null;
    const [anchor, height] = first ? [place(old, first), top(first)] : [null, 0];
    const part = document.importNode(fresh, true);
    old.replaceWith(part);
    const kept = anchor && find(part, anchor);
    if (kept) scrollBy(0, top(kept) - height);
    if (focused) find(part, focused)?.focus({ preventScroll: true });
    head = part.dataset.head;
  };

  let notice = 0;
  const notify = (text) => {
    clearTimeout(notice);
    status.textContent = text;
  };

  const read = async () => {
    if (reading || wanted === head) return;
    reading = true;
    const asked = wanted;
    const before = head;
    const begun = performance.now();
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
      if (!response.ok) throw new Error(`status ${response.status}`);
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.querySelector("[data-live]");
      // What has not changed keeps its selection, and is not announced.
      if (fresh && fresh.innerHTML === live().innerHTML) {
        head = fresh.dataset.head;
        if (poll) notify("");
      } else if (fresh) {
        replace(fresh);
        // A part that is read every few seconds is announced when its state is another one.
        const isNews = !poll || head !== before;
        notify(isNews ? (poll ? `Updated: the state is ${head}.` : "Updated: there are new commits.") : "");
        notice = setTimeout(() => notify(""), NOTICE);
      }
      // The page may be newer than the event.
      if (wanted === asked) wanted = head;
    } catch (error) {
      notify(`Not updated (${error.message})${poll ? "; trying again." : ": reload the page."}`);
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
    if (poll || document.visibilityState !== "visible" || events) return;
    events = new EventSource("/events");
    events.addEventListener("head", (event) => {
      wanted = event.data;
      read();
    });
    events.addEventListener("error", () => {
      const isClosed = events && events.readyState === EventSource.CLOSED;
      notify(
        isClosed
          ? "The connection is lost. Reload the page; if the program was started again, open its new URL."
          : "The connection is lost; trying again.",
      );
    });
    events.addEventListener("open", () => {
      notify("");
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
  if (poll) {
    setInterval(() => {
      if (document.visibilityState !== "visible") return;
      wanted = null;
      read();
    }, poll);
  }
})();
