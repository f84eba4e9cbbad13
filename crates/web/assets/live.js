// Keeps the overview, a run or a comparison up to date: the server says that something changed, the page asks for it.

const place = document.getElementById("live");
const pulse = document.getElementById("pulse");
const POLL = 2000;
let busy = false;
let again = false;

/** Whether a change matters to this page. `null`: anything may have changed. */
function concerns(changed) {
  if (changed === null || place.dataset.live === "overview") return true;
  if (place.dataset.live === "run") return changed.includes(place.dataset.run);
  const compared = new URLSearchParams(location.search).getAll("run");
  return changed.some((id) => compared.includes(id));
}

async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    do {
      again = false;
      const address = new URL(location.href);
      address.searchParams.set("fragment", "1");
      address.hash = "";
      const response = await fetch(address);
      if (response.ok) replace(await response.text());
      pulse.textContent = response.ok ? `Updated ${new Date().toLocaleTimeString()}` : "This page is no longer there";
    } while (again);
  } catch {
    pulse.textContent = "The server does not answer";
  } finally {
    busy = false;
  }
}

/** Puts new contents in place and keeps what the reader did: ticks, focus, and how far boxes were scrolled. */
function replace(text) {
  const ticked = new Set([...place.querySelectorAll("input:checked")].map((box) => box.value));
  const scrolled = [...place.querySelectorAll(".wide, figure")].map((box) => box.scrollLeft);
  const key = (element) => element.value || element.getAttribute("href");
  const active = place.contains(document.activeElement) ? document.activeElement : null;
  const [tag, name] = active ? [active.tagName, key(active)] : [];
  place.innerHTML = text;
  for (const box of place.querySelectorAll("input[type=checkbox]")) box.checked = ticked.has(box.value);
  place.querySelectorAll(".wide, figure").forEach((box, index) => {
    if (scrolled[index]) box.scrollLeft = scrolled[index];
  });
  if (active) [...place.querySelectorAll(tag)].find((element) => key(element) === name)?.focus({ preventScroll: true });
}

if (place) {
  const events = new EventSource("/events");
  events.addEventListener("change", (event) => {
    if (concerns(JSON.parse(event.data).changed)) refresh();
  });
  events.addEventListener("open", () => {
    pulse.textContent = "Live";
    refresh();
  });
  events.addEventListener("error", () => {
    pulse.textContent = "Waiting for the server";
    // With too many open pages the server refuses streams; then the page asks by itself.
    if (events.readyState === EventSource.CLOSED) setInterval(refresh, POLL);
  });
  addEventListener("pagehide", () => events.close());
}
