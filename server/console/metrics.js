/* Reads /metrics, and computes changes between two looks at it. */

const STAGES = ["receive", "queue", "decode", "compute", "encode", "total", "send"];
const SAMPLE = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /([a-z_]+)="((?:[^"\\]|\\.)*)"/g;

function readLabels(text) {
  const labels = {};
  for (const [, name, value] of (text || "").matchAll(LABEL))
    labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  return labels;
}

/* Returns one look: gauges by name, each model's counters, and histograms as counts up to each
 * bound. */
function readMetrics(text) {
  const look = {time: performance.now() / 1000, gauges: {}, info: {}, models: new Map()};
  for (const line of text.split("\n")) {
    const match = line[0] === "#" ? null : SAMPLE.exec(line);
    if (match === null) continue;
    const [, name, labelText, value] = match;
    const number = Number(value);
    if (labelText === undefined) {
      look.gauges[name] = number;
    } else if (name === "quantd_info") {
      look.info = readLabels(labelText);
    } else if (labelText.startsWith("model=")) {
      const labels = readLabels(labelText);
      const key = JSON.stringify([labels.model, labels.version]);
      if (!look.models.has(key))
        look.models.set(key, {...labels, good: 0, bad: 0, stages: {}});
      const model = look.models.get(key);
      if (name === "nv_inference_request_success") model.good = number;
      else if (name === "nv_inference_request_failure") model.bad += number;
      else if (name === "quantd_stage_duration_seconds_bucket")
        (model.stages[labels.stage] ??= []).push([Number(labels.le.replace("+Inf", "Infinity")),
                                                  number]);
    }
  }
  return look;
}

/* Returns a quantile of the counts up to each bound, minus the counts of an earlier look.
 * Interpolates linearly within a bucket, as Prometheus' histogram_quantile does, but returns the
 * bound of the first bucket. NaN: nothing was counted. */
function quantile(share, now, before) {
  if (!now) return NaN;
  const counts = now.map(([, count], i) => count - (before?.[i]?.[1] ?? 0));
  const wanted = share * counts.at(-1);
  if (!(counts.at(-1) > 0)) return NaN;
  const at = counts.findIndex((count) => count >= wanted);
  const [low, below] = at > 0 ? [now[at - 1][0], counts[at - 1]] : [now[0][0], 0];
  if (now[at][0] === Infinity) return low;
  return low + (now[at][0] - low) * (wanted - below) / (counts[at] - below || 1);
}

/* Returns the sum over all models. */
function sumModels(look) {
  const sum = {good: 0, bad: 0, total: []};
  for (const model of look.models.values()) {
    sum.good += model.good;
    sum.bad += model.bad;
    (model.stages.total || []).forEach(([bound, count], i) => {
      (sum.total[i] ??= [bound, 0])[1] += count;
    });
  }
  return sum;
}
