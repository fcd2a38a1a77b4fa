// The list of the bot's commands, over the message box while it holds a slash and the begin of a name.

import { make } from "./make.js";

const at = (id) => document.getElementById(id);

export const openCommands = (text) => {
  const known = Object.entries(JSON.parse(document.body.dataset.commands)), list = at("commands");
  let active = null, closed = null; // the marked option, and the words for which Escape closed the list

  const mark = (option) => {
    active?.setAttribute("aria-selected", "false");
    active = option;
    active?.setAttribute("aria-selected", "true");
    active?.scrollIntoView({ block: "nearest" });
    if (active) text.setAttribute("aria-activedescendant", active.id); else text.removeAttribute("aria-activedescendant");
  };
  const close = () => {
    list.hidden = true;
    list.replaceChildren();
    mark(null);
  };
  const take = (option) => {
    text.value = `/${option.dataset.name} `;
    text.dispatchEvent(new Event("input")); // the draft is kept
    text.focus();
  };
  const optionOf = ([name, about]) => {
    const option = make("li");
    option.id = `command-${name}`;
    option.dataset.name = name;
    option.role = "option";
    option.setAttribute("aria-selected", "false");
    const described = make("span", "does", about);
    described.dir = "auto";
    option.append(make("span", "name", `/${name}`), described);
    option.addEventListener("click", () => take(option));
    return option;
  };

  const update = () => {
    const begun = text.value.match(/^\/([a-z0-9_]*)$/i)?.[1].toLowerCase();
    const fits = begun === undefined || closed === text.value ? [] : known.filter(([name]) => name.startsWith(begun));
    closed = null;
    close();
    if (!fits.length) return;
    list.replaceChildren(...fits.map(optionOf));
    list.hidden = false;
    mark(list.firstElementChild);
  };

  const step = (by) => {
    const options = [...list.children];
    mark(options.at((options.indexOf(active) + by) % options.length));
  };
  const KEYS = {
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    Tab: () => take(active),
    Escape: () => { closed = text.value; close(); },
    Enter: () => take(active),
  };
  text.addEventListener("keydown", (event) => {
    if (list.hidden || event.isComposing || event.shiftKey || !(event.key in KEYS)) return;
    if (event.key === "Enter" && text.value === `/${active.dataset.name}`) return close(); // it is whole: it is sent
    event.preventDefault();
    event.stopImmediatePropagation();
    KEYS[event.key]();
  });
  list.addEventListener("mousedown", (event) => event.preventDefault()); // the box keeps the focus
  text.addEventListener("input", update);
  text.addEventListener("blur", close);
  text.addEventListener("focus", update);
};
