// The state of the page that its address stores: `#range=100-2000&at=1500&by=size&clock=events&theme=dark`.

class State {
  constructor() {
    this.values = new Map(new URLSearchParams(location.hash.slice(1)));
    this.restart();
    window.addEventListener("hashchange", () => {
      const now = new Map(new URLSearchParams(location.hash.slice(1)));
      const names = new Set([...now.keys(), ...this.values.keys()]);
      const changed = [...names].filter(name => now.get(name) !== this.values.get(name));
      this.values = now;
      for (const name of changed) this.tell(name);
    });
    this.write = once(() => {
      const text = new URLSearchParams([...this.values]).toString();
      if (text !== location.hash.slice(1)) history.replaceState(null, "", `#${text}`);
    });
  }

  /** Forgets all listeners, for another page. What listens elsewhere ends with `signal`. */
  restart() {
    this.ending?.abort();
    this.ending = new AbortController();
    this.listeners = new Map();
  }

  get signal() {
    return this.ending.signal;
  }

  get(name) {
    return this.values.get(name);
  }

  /** Stores a value, or removes it where it is null. */
  set(name, value) {
    const text = value == null ? undefined : String(value);
    if (this.values.get(name) === text) return;
    if (text === undefined) this.values.delete(name);
    else this.values.set(name, text);
    this.write();
    this.tell(name);
  }

  /** Calls `listener` whenever one of the names, with spaces between them, changes. */
  on(names, listener) {
    for (const name of names.split(" ")) {
      this.listeners.set(name, [...(this.listeners.get(name) ?? []), listener]);
    }
  }

  tell(name) {
    for (const listener of this.listeners.get(name) ?? []) listener();
  }
}
