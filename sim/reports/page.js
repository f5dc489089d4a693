"use strict";
// Shows under the pointer what a chart is made of. Texts are set as texts: no name becomes markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const tip = document.getElementById("tip");

  const hide = () => { tip.style.display = "none"; };
  const show = (event, lines) => {
    tip.textContent = lines.join("\n");
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    const left = event.clientX + 14 + box.width > innerWidth ? event.clientX - 14 - box.width : event.clientX + 14;
    const top = Math.min(event.clientY + 14, innerHeight - box.height - 4);
    tip.style.left = `${Math.max(left, 4)}px`;
    tip.style.top = `${Math.max(top, 4)}px`;
  };

  const two = (value) => String(Math.floor(value)).padStart(2, "0");
  const clock = (at) => {
    const days = Math.floor(at / 86400);
    const text = `${two(at % 86400 / 3600)}:${two(at % 3600 / 60)}:${two(at % 60)}`;
    return days ? `${days} d ${text}` : text;
  };
  const level = (value) => (value === undefined ? "-" : String(Math.round(value * 10) / 10));

  // Where the pointer is, in the units of the chart's drawing.
  const inside = (chart, event) => {
    const box = chart.getBoundingClientRect();
    const scale = Number(chart.dataset.width) / box.width;
    return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  };

  const timeline = document.getElementById("timeline");
  if (timeline) {
    const told = data.timeline;
    const cross = timeline.querySelector(".cross");
    const left = Number(timeline.dataset.left), right = Number(timeline.dataset.right);
    timeline.addEventListener("pointermove", (event) => {
      const [x] = inside(timeline, event);
      if (x < left || x > right) { hide(); cross.style.visibility = "hidden"; return; }
      const at = (x - left) / (right - left) * told.end_s;
      cross.setAttribute("x1", x);
      cross.setAttribute("x2", x);
      cross.style.visibility = "visible";
      const lines = [clock(at)];
      told.panels.forEach((panel, index) => {
        const values = told.runs.map((run) => level(run.series[index][Math.floor(at / run.bucket_s)]));
        lines.push(`${panel}: ${values.join("  |  ")}`);
      });
      if (told.runs.length > 1) lines.push(told.runs.map((run) => run.label).join("  |  "));
      show(event, lines);
    });
    timeline.addEventListener("pointerleave", () => { hide(); cross.style.visibility = "hidden"; });
  }

  document.querySelectorAll(".heatmap").forEach((chart) => {
    const told = data.heat[Number(chart.dataset.run)];
    const bounds = ["left", "right", "top", "bottom"].map((name) => Number(chart.dataset[name]));
    const [left, right, top, bottom] = bounds;
    chart.addEventListener("pointermove", (event) => {
      const [x, y] = inside(chart, event);
      if (x < left || x >= right || y < top || y >= bottom) { hide(); return; }
      const row = Math.floor((y - top) / (bottom - top) * told.workers.length);
      const lengths = told.rows[row];
      let count = 0;
      for (let index = 1; index < lengths.length; index += 2) count += lengths[index];
      const bucket = Math.floor((x - left) / (right - left) * count);
      let found = 0, passed = 0;
      for (let index = 0; index < lengths.length && passed <= bucket; index += 2) {
        found = lengths[index];
        passed += lengths[index + 1];
      }
      const held = found > 100 ? "not there" : `${found}% of its GPUs held`;
      show(event, [told.workers[row], clock(bucket * told.bucket_s), held]);
    });
    chart.addEventListener("pointerleave", hide);
  });
})();
