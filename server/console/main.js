/* Asks the server for its metrics every two seconds, as long as this page is visible. */

let waiting = 0;

async function look() {
  clearTimeout(waiting);
  waiting = 0;
  const begun = performance.now();
  let pause = LOOK_MS;
  try {
    const text = await (await ask("GET", "/metrics")).text();
    const now = readMetrics(text), start = now.gauges.process_start_time_seconds;
    if (live.start !== start) { /* a new process, whose counters begin at 0 */
      live.looks = [];
      play.document = null;
    }
    const told = [start, now.gauges.quantd_models_loaded, ...now.models.keys()].join();
    if (live.told !== told) {
      await refresh();
      live.told = told;
    }
    live.start = start;
    drawCharts(now, live.looks.at(-1) ?? now);
    live.looks.push(now);
    while (now.time - live.looks[0].time > 60) live.looks.shift();
    drawModels();
    pause = Math.max(pause, 20 * (performance.now() - begun)); /* slow with a thousand models */
  } catch (error) {
    if (!(error instanceof Refusal)) throw error; /* the state already shows a refusal */
  } finally {
    if (!document.hidden) waiting = setTimeout(look, pause);
  }
}

startTokens(look);
startModels();
startPlayground();
startNetwork();
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && waiting === 0) look();
});
look();
