// A field for text. A browser takes seconds to lay out a megabyte, so what is too long is kept here and not shown.

const MAX_FIELD = 100000; // characters that are shown

class Field {
  // `changed()` is called when the user has changed the text.
  constructor(id, changed) {
    this.input = byId(id);
    this.hint = this.input.placeholder;
    this.input.addEventListener("input", () => {
      this.set(this.input.value);
      changed();
    });
    for (const kind of ["paste", "drop"]) this.input.addEventListener(kind, (event) => {
      const text = (event.clipboardData || event.dataTransfer).getData("text/plain");
      if (text.length <= MAX_FIELD) return;
      event.preventDefault();
      const { value, selectionStart, selectionEnd } = this.input;
      this.set(value.slice(0, selectionStart) + text + value.slice(selectionEnd));
      changed();
    });
  }

  get text() {
    return this.whole ?? this.input.value;
  }

  set(text) {
    const long = text.length > MAX_FIELD, shown = long ? "" : text;
    this.whole = long ? text : undefined;
    if (this.input.value !== shown) this.input.value = shown;
    const count = counted(text.length, "character");
    this.input.placeholder = long ? `${count}, too many to show, are here. Paste or write to replace them.` : this.hint;
  }
}
