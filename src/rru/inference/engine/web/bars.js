// Bars of chances, the highest first.

// Return the indices of the highest of `chances`, at most `count` of them.
function likeliest(chances, count, allowed = () => true) {
  const order = [];
  for (let index = 0; index < chances.length; ++index) {
    if (!allowed(index) || (order.length === count && chances[index] <= chances[order.at(-1)])) continue;
    let place = order.length;
    while (place && chances[order[place - 1]] < chances[index]) --place;
    order.splice(place, 0, index);
    if (order.length > count) order.pop();
  }
  return order;
}

function percent(chance) {
  return chance >= 0.9995 ? "100 %" : `${(100 * chance).toFixed(chance < 0.1 ? 1 : 0)} %`;
}

// Fill a list. `rows`: { text, sign, chance, colour, choose }; with `choose` a row is a button.
function showBars(list, rows) {
  list.replaceChildren(...rows.map(({ text, sign, chance, colour, choose }, number) => {
    const style = { width: `${100 * chance}%`, ...(colour ? { background: colour } : {}) };
    const fill = element("span", { class: "fill", style });
    const share = element("span", { class: "chance" }, percent(chance));
    const name = element("span", { class: sign ? "name space" : "name" }, text);
    const row = element(choose ? "button" : "div", choose ? { type: "button" } : {}, fill, name, share);
    if (choose) row.addEventListener("click", choose);
    return element("li", number ? {} : { class: "first" }, row);
  }));
}
