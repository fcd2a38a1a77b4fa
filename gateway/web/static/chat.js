// The chat page. The server's log is the truth: what is shown comes from it, in its order, and a message of the
// person's own is shown early and then taken over by its entry in the log.

import { copy, openAnswers } from "./answers.js";
import { openChats } from "./chats.js";
import { openCommands } from "./commands.js";
import { openConsole } from "./console.js";
import { openFiles } from "./files.js";
import { make } from "./make.js";
import { stepsOf } from "./steps.js";
import * as visit from "./visit.js";

const at = (id) => document.getElementById(id);
const texts = JSON.parse(document.body.dataset.texts); // in the person's language, as all that the page says
const log = at("log"), scroll = at("scroll"), text = at("text"), state = at("state");
const typing = at("typing"), draft = at("draft"), newest = at("newest"), empty = at("empty");
const stop = at("stop"), send = at("send");

const STATES = { connecting: texts.connecting, open: texts.connected, lost: texts.reconnecting, ended: texts.ended };
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const RETRY_AFTER_MS = [500, 1500, 4000];
const TYPING_MS = 6000;
const DRAFT_MS = 30_000; // without a change for so long, the answer that was being written will not come from there
const ANSWERED_MS = 1500; // an answer to a press comes with an edit of the question, or shortly before it
const PRESSED_MS = 15_000;
const SHORT = 14; // characters of a table's cell that is never broken

const messages = new Map(); // message id -> its element
let last = 0; // the newest entry that was seen
let shown = null; // the id of the bot's newest message on the page

const freshId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
// The page's language in the person's own region, where the browser names one.
const { lang } = document.documentElement;
const locale = navigator.language.split("-")[0] === lang ? navigator.language : lang;
const clock = (iso, seconds) =>
  new Date(iso).toLocaleTimeString(locale, { hour: "numeric", minute: "2-digit", second: seconds ? "2-digit" : undefined });

// "tomorrow 6:40 AM", or a date where no word names the day.
const dayAndClock = (iso) => {
  const at = new Date(iso), days = Math.round((new Date(at).setHours(12, 0, 0, 0) - new Date().setHours(12, 0, 0, 0)) / 86_400_000);
  const day = Math.abs(days) > 1
    ? at.toLocaleDateString(locale, { weekday: "long", day: "numeric", month: "long" })
    : new Intl.RelativeTimeFormat(locale, { numeric: "auto" }).format(days, "day");
  return `${day} ${clock(iso)}`;
};

// ---- scrolling: follow the conversation unless the person has scrolled away

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
let follows = true, top = 0; // whether the person reads the end, and where the page was scrolled to
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; newest.hidden = follows = true; };

const following = (change) => {
  const follow = follows;
  change();
  if (follow) toEnd(); else newest.hidden = false;
};

newest.addEventListener("click", toEnd);
// Only a person scrolls up. A page that is far from its end without that has grown, and goes on to be followed.
scroll.addEventListener("scroll", () => {
  follows = atEnd() || (follows && scroll.scrollTop >= top);
  top = scroll.scrollTop;
  if (follows) newest.hidden = true;
}, { passive: true });
// A picture that has come, a window that got smaller, a keyboard that opened.
const grown = new ResizeObserver(() => { if (follows) toEnd(); });
grown.observe(log);
grown.observe(scroll);

// ---- sending: tried again under the same id, which the server takes once

const post = async (path, body) => {
  for (let attempt = 0; ; attempt += 1) {
    let status = 0;
    try {
      const headers = { ...visit.headers(), "Content-Type": "application/json" };
      status = (await fetch(path, { method: "POST", headers, body: JSON.stringify({ ...body, ...visit.here }) })).status;
    } catch { /* no connection: like a 503 */ }
    if (status >= 200 && status < 300) return true;
    if (status === 401) setState("ended");
    if ((status && status < 500) || attempt === RETRY_AFTER_MS.length) return false;
    await wait(RETRY_AFTER_MS[attempt]);
  }
};

// `after` is what the person saw when they pressed send, however late the words arrive.
const say = async (words, uploads = [], id = freshId(), after = shown) => {
  const message = messageOf(id, "person");
  message.bubble.textContent = words;
  message.files.replaceChildren(...uploads.map(({ element }) => element));
  message.className = "message person sending";
  message.meta.textContent = "";
  toEnd();
  // Words that were written after a file do not arrive before it.
  uploading = Promise.all([uploading, ...uploads.map(({ done }) => done)]);
  await uploading;
  const kept = await Promise.all(uploads.map(({ done }) => done));
  const sent = kept.every(Boolean) && await post("chat/messages", { client_id: id, text: words, files: kept, after });
  message.classList.remove("sending");
  if (sent || message.settled) return;
  message.classList.add("failed");
  const again = make("button", "", texts.try_again);
  again.type = "button";
  again.addEventListener("click", () => {
    uploads.forEach(files.again);
    say(words, uploads, id, after);
  });
  message.meta.replaceChildren(texts.no_answer, again);
};
let uploading = Promise.resolve();

// The question shows that it works until it is edited. A press that changes nothing is answered by a message alone.
const free = (message) => {
  clearTimeout(message.frees);
  if (message.classList.contains("working")) message.meta.textContent = message.time;
  message.classList.remove("working");
  for (const button of message.pressed ?? []) {
    button.disabled = false;
    button.removeAttribute("aria-busy");
  }
  message.pressed = null;
};

const press = async (message, pressed, button) => {
  clearTimeout(message.frees);
  message.pressed = message.buttons.querySelectorAll("button:enabled");
  for (const other of message.pressed) other.disabled = true;
  pressed.setAttribute("aria-busy", "true");
  message.classList.remove("failed");
  message.classList.add("working");
  message.meta.textContent = texts.working;
  message.frees = setTimeout(() => free(message), PRESSED_MS);
  button.client_id ??= freshId();
  const sent = await post("chat/presses", { client_id: button.client_id, token: button.token, message_id: message.messageId });
  if (sent) return;
  free(message);
  message.classList.add("failed");
  message.meta.textContent = texts.press_again;
};

// ---- showing

const messageOf = (id, from) => {
  const known = messages.get(id);
  if (known) return known;
  const message = make("li", `message ${from}`);
  message.messageId = id;
  message.append(make("span", "unseen", `${from === "bot" ? texts.bot : texts.you} `));
  for (const part of ["bubble", "files", "buttons", "small", "foot", "meta"]) message[part] = make("div", part);
  message.foot.append(message.meta);
  message.append(message.bubble, message.files, message.buttons, message.small, message.foot);
  messages.set(id, message);
  empty.hidden = true;
  log.append(message);
  return message;
};

const sizeOf = (bytes) => {
  const [size, unit, maximumFractionDigits] =
    bytes < 1000 ? [bytes, "byte", 0] : bytes < 1e6 ? [bytes / 1e3, "kilobyte", 0] : [bytes / 1e6, "megabyte", 1];
  return size.toLocaleString(locale, { style: "unit", unit, maximumFractionDigits });
};

const fileCard = (file) => {
  const link = make("a", PICTURES.has(file.mime_type) ? "picture" : "file");
  link.href = file.link;
  link.download = file.filename;
  if (PICTURES.has(file.mime_type)) {
    const image = make("img");
    image.src = file.link;
    image.alt = file.filename;
    link.append(image);
    return link;
  }
  const ending = file.filename.includes(".") ? file.filename.split(".").pop().slice(0, 4) : "file";
  const words = make("span");
  words.append(make("span", "name", file.filename), make("span", "size", `${sizeOf(file.size)} · ${texts.download}`));
  const kind = make("span", "kind", ending.toUpperCase());
  kind.setAttribute("aria-hidden", "true");
  link.append(kind, words);
  return link;
};

const buttonOf = (message, button) => {
  const element = make("button", button.style, button.label);
  element.type = "button";
  element.addEventListener("click", (event) => {
    press(message, element, button);
    if (event.detail === 0) text.focus(); // by keyboard: the button is about to go
  });
  return element;
};

// On a phone a row is shown as a card, whose lines are named by the headings. Amounts and dates stay whole.
const nameCells = (bubble) => {
  for (const cell of bubble.querySelectorAll("td")) cell.classList.toggle("short", cell.textContent.length <= SHORT);
  for (const table of bubble.querySelectorAll("table")) {
    const names = [...table.querySelectorAll("th")].map((cell) => cell.textContent);
    if (names.length < 3 || !names.some(Boolean)) continue;
    table.classList.add("cards");
    for (const row of table.tBodies[0]?.rows ?? []) {
      [...row.cells].forEach((cell, index) => { cell.dataset.label = names[index]; });
    }
  }
};

// A long line goes on to the side; the whole can be copied.
const addCopying = (bubble) => {
  for (const code of bubble.querySelectorAll("pre")) {
    const frame = make("div", "code"), button = make("button", "copy", texts.copy);
    button.type = "button";
    button.addEventListener("click", () => copy(button, code.textContent, code, texts));
    code.tabIndex = 0; // so that keys can scroll it
    code.replaceWith(frame);
    frame.append(code, ...(navigator.clipboard ? [button] : []));
  }
};

const SIGN = /^[✅🚫❌❔⏳]\s/u;

// The note about the outcome has the colour and the sign of its state, once the message asks nothing any more.
const addMarks = (bubble, states) => {
  if (!states.length || states.includes("open")) return;
  const lines = [...bubble.querySelectorAll(":scope > p")];
  const notes = states.length === 1 ? lines.slice(-1) : lines.filter((line) => SIGN.test(line.textContent));
  if (notes.length !== states.length) return;
  notes.forEach((note, index) => {
    note.className = `settled ${states[index]}`;
    const words = note.firstChild;
    if (words?.nodeType === Node.TEXT_NODE) words.data = words.data.replace(SIGN, "");
  });
};

// The buttons of one question stand together: confirm, cancel, and those that follow. Below the pair for a whole plan
// stands a button for each question.
const pairsOf = (buttons) => {
  const pairs = [];
  let open = false;
  for (const button of buttons) {
    const more = button.style === "plain" && pairs.at(-1)?.some(({ style }) => style === "cancel");
    if (open || more) pairs.at(-1).push(button); else pairs.push([button]);
    open = button.style === "confirm";
  }
  return pairs;
};

const isAsked = (message) => Boolean(message.buttons.querySelector(".confirm, .cancel"));

// The buttons of an answered question keep their places, and do nothing.
const addButtons = (message, buttons, settled) => {
  const pairs = pairsOf(buttons), isPlan = pairs.length === 1 && settled.length > 1;
  message.buttons.replaceChildren(...pairs.map((pair, index) => {
    const group = make("div", "pair");
    group.append(...pair.map((button) => buttonOf(message, button)));
    [...group.children].forEach((element, place) => {
      const state = settled[isPlan ? place - 2 : index] ?? "open";
      const answers = isPlan ? place > 1 : pairs.length === settled.length;
      element.disabled = answers && state !== "open";
    });
    return group;
  }));
};

const show = (entry) => {
  // An edit replaces the words and buttons of a message that is there, and brings none of its own.
  const message = messageOf(entry.edits ?? entry.message_id, entry.from);
  message.settled = true;
  if (entry.from === "bot") {
    message.bubble.innerHTML = entry.html; // made safe by the server
    nameCells(message.bubble);
    addCopying(message.bubble);
    addMarks(message.bubble, entry.settled ?? []);
    for (const time of message.bubble.querySelectorAll("time")) {
      time.textContent = ("day" in time.dataset ? dayAndClock : clock)(time.dateTime);
    }
    message.small.innerHTML = entry.small ?? "";
  } else message.bubble.textContent = entry.text ?? "";
  if (!entry.edits || entry.media.length) message.files.replaceChildren(...entry.media.map(fileCard));
  free(message);
  addButtons(message, entry.buttons ?? [], entry.settled ?? []);
  message.className = `message ${entry.from}${isAsked(message) ? " asks" : ""}`;
  message.meta.textContent = message.time = clock(entry.at);
  answers.shown(message, entry);
  if (entry.from !== "bot") return;
  if (!entry.edits) {
    stopDraft();
    shown = entry.message_id;
    for (const pressed of log.querySelectorAll(".working")) {
      clearTimeout(pressed.frees);
      pressed.frees = setTimeout(() => free(pressed), ANSWERED_MS);
    }
  }
  stopTyping();
};

// While an answer is written, the button beside the box stops it.
const showStop = () => {
  const writes = !typing.hidden || !draft.hidden;
  if (stop.hidden && writes) stopId = freshId();
  stop.hidden = !writes;
  send.hidden = writes && !text.value.trim();
};
let stopId = freshId();
stop.addEventListener("click", async () => {
  stop.disabled = true;
  await post("chat/stops", { client_id: stopId, stop: true });
  stop.disabled = false;
  text.focus();
});

let typingEnds;
const stopTyping = () => { clearTimeout(typingEnds); typing.hidden = true; showStop(); };
const startTyping = () => {
  clearTimeout(typingEnds);
  typingEnds = setTimeout(stopTyping, TYPING_MS);
  following(() => { typing.hidden = false; });
  showStop();
};

// The answer as far as it is written: no message yet, so it has no id and is not announced.
let draftEnds;
const stopDraft = () => { clearTimeout(draftEnds); draft.hidden = true; draft.replaceChildren(); showStop(); };
const showDraft = ({ html }) => {
  clearTimeout(draftEnds);
  draftEnds = setTimeout(stopDraft, DRAFT_MS);
  stopTyping();
  following(() => {
    const bubble = draft.firstElementChild ?? draft.appendChild(make("div", "bubble"));
    bubble.innerHTML = html; // made safe by the server
    nameCells(bubble);
    draft.hidden = false;
  });
  showStop();
};

const setState = (name) => {
  if (state.dataset.state === "ended") return;
  state.dataset.state = name;
  state.textContent = STATES[name];
  if (name === "ended") visit.onEnded();
};

// ---- listening: the browser reconnects by itself; after a refusal it does not, so we do

const refused = async (path) => {
  const asked = new AbortController();
  try {
    return (await fetch(path, { headers: visit.headers(), signal: asked.signal })).status === 401;
  } catch {
    return false;
  } finally {
    asked.abort();
  }
};

const listen = (path, handlers, onState = () => {}) => {
  const source = visit.openStream(path());
  source.addEventListener("open", () => onState("open"));
  source.addEventListener("error", async () => {
    onState("lost");
    if (source.readyState !== EventSource.CLOSED) return;
    if (await refused(path())) return onState("ended");
    await wait(source.retry ?? 3000);
    listen(path, handlers, onState);
  });
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handle(JSON.parse(event.data), Number(event.lastEventId)));
  }
};

const answers = openAnswers({ texts, log, post, freshId, say, messages });

listen(() => visit.withChat(`chat/events?after=${last}`), {
  message: (entry, seq) => {
    if (seq <= last) return;
    last = seq;
    following(() => {
      if (entry.from === "steps") log.append(stepsOf(entry, texts));
      else if (entry.from === "rating") answers.rated(entry);
      else show(entry);
    });
  },
  typing: () => { if (draft.hidden) startTyping(); },
  draft: showDraft,
}, setState);

// ---- composer

openCommands(text);
text.value = sessionStorage.getItem(visit.draftKey()) ?? "";
const keepDraft = () => sessionStorage.setItem(visit.draftKey(), text.value);
text.addEventListener("input", () => { keepDraft(); showStop(); });

const files = openFiles({ texts, freshId, sizeOf, onEnded: () => setState("ended") });

const submit = () => {
  const words = text.value.trim(), uploads = files.take();
  if (!words && !uploads.length) return;
  text.value = "";
  keepDraft();
  text.focus();
  say(words, uploads);
};

at("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
});

// The bold phrases of the greeting are what a person may begin with.
for (const phrase of empty.querySelectorAll(".greeting strong")) {
  const starter = make("button", "starter", phrase.textContent);
  starter.type = "button";
  starter.addEventListener("click", () => say(starter.textContent));
  // A comma or a full stop does not begin a line.
  const together = make("span", "together"), after = phrase.nextSibling;
  phrase.replaceWith(together);
  const mark = after?.nodeType === Node.TEXT_NODE ? after.data.match(/^\p{P}*/u)[0] : "";
  if (mark) after.data = after.data.slice(mark.length);
  together.append(starter, mark);
}

openChats({ texts, locale, onEnded: () => setState("ended") });

if (document.body.dataset.console === "on") openConsole(listen, { clock, locale, texts });
