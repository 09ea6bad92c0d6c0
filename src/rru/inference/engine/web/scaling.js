// The scaling of a series that the model was not trained on: that of its own values, as `Scaling.of` in Python.

const MIN_SPAN = 8, MIN_LOG_SHARE = 0.01;

function mean(list) {
  return list.reduce((sum, value) => sum + value, 0) / list.length;
}

function deviation(list, centre = mean(list)) {
  return Math.sqrt(mean(list.map((value) => (value - centre) ** 2)));
}

function median(list) {
  const sorted = [...list].sort((a, b) => a - b), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function ownScaling(values, season) {
  let last = values.find((value) => !Number.isNaN(value));
  const filled = values.map((value) => (last = Number.isNaN(value) ? last : value));
  const low = filled.reduce((a, b) => Math.min(a, b)), log = low > 0 && low >= MIN_LOG_SHARE * median(filled);
  const floor = log ? low / 10 : 0, scaled = log ? filled.map((value) => Math.log(Math.max(value, floor))) : filled;
  const spread = deviation(fromRecentMean(scaled, season)) || deviation(scaled) || 1;
  const unit = log && about.log_unit ? about.log_unit : spread;
  return { floor, centre: mean(scaled), unit, least: low >= 0 ? 0 : -Infinity, width: 1 };
}

// Return how far values are from the mean of the season before them.
function fromRecentMean(values, season) {
  const span = Math.max(season, MIN_SPAN), first = Math.min(values.length - 1, span), sums = [0];
  for (const value of values) sums.push(sums.at(-1) + value);
  return values.slice(first).map((value, place) => {
    const end = first + place + 1, start = Math.max(end - span, 0);
    return value - (sums[end] - sums[start]) / (end - start);
  });
}
