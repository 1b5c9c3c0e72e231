// Keeps times such as `5 min ago` up to date while a page is open. The server writes them in the same way.

const INTERVAL = 10_000;
const UNITS = [
  { below: 120, seconds: 1, name: "s" },
  { below: 7200, seconds: 60, name: "min" },
  { below: 172_800, seconds: 3600, name: "h" },
  { below: Infinity, seconds: 86_400, name: "days" },
];

setInterval(() => {
  for (const time of document.querySelectorAll("time.relative")) {
    const past = (Date.now() - Date.parse(time.getAttribute("datetime") ?? "")) / 1000;
    const unit = UNITS.find((unit) => Math.abs(past) < unit.below);
    if (!unit) continue;
    const shown = `${Math.floor(Math.abs(past) / unit.seconds)} ${unit.name}`;
    time.textContent = past >= 0 ? `${shown} ago` : `in ${shown}`;
  }
}, INTERVAL);
