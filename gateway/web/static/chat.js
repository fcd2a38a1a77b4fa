// The chat page. The server's log is the truth: what is shown comes from it, in its order, and a message of the
// person's own is shown early and then taken over by its entry in the log.

const at = (id) => document.getElementById(id);
const log = at("log"), scroll = at("scroll"), text = at("text"), state = at("state");
const typing = at("typing"), newest = at("newest"), empty = at("empty");

const STATES = { connecting: "Connecting…", open: "Connected", lost: "Reconnecting…", ended: "Session ended: reload the page" };
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const RETRY_AFTER_MS = [500, 1500, 4000];
const TYPING_MS = 6000;

const messages = new Map(); // message id -> its element
let last = 0; // the newest entry that was seen
let shown = null; // the id of the bot's newest message on the page

const make = (tag, name = "", words = "") => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (words) element.textContent = words;
  return element;
};

const freshId = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, "0")).join("");
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const clock = (iso, seconds) =>
  new Date(iso).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: seconds ? "2-digit" : undefined });

// ---- scrolling: follow the conversation unless the person has scrolled away

const atEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 80;
const toEnd = () => { scroll.scrollTop = scroll.scrollHeight; newest.hidden = true; };

const following = (change) => {
  const follow = atEnd();
  change();
  if (follow) toEnd(); else newest.hidden = false;
};

newest.addEventListener("click", toEnd);
scroll.addEventListener("scroll", () => { if (atEnd()) newest.hidden = true; }, { passive: true });

// ---- sending: tried again under the same id, which the server takes once

const post = async (path, body) => {
  for (let attempt = 0; ; attempt += 1) {
    let status = 0;
    try {
      const headers = { "Content-Type": "application/json" };
      status = (await fetch(path, { method: "POST", headers, body: JSON.stringify(body) })).status;
    } catch { /* no connection: like a 503 */ }
    if (status >= 200 && status < 300) return true;
    if (status === 401) setState("ended");
    if ((status && status < 500) || attempt === RETRY_AFTER_MS.length) return false;
    await wait(RETRY_AFTER_MS[attempt]);
  }
};

// `after` is what the person saw when they pressed send, however late the words arrive.
const say = async (words, id = freshId(), after = shown) => {
  const message = messageOf(id, "person");
  message.bubble.textContent = words;
  message.className = "message person sending";
  message.meta.textContent = "";
  toEnd();
  const sent = await post("chat/messages", { client_id: id, text: words, after });
  message.classList.remove("sending");
  if (sent || message.settled) return;
  message.classList.add("failed");
  const again = make("button", "", "Try again");
  again.type = "button";
  again.addEventListener("click", () => say(words, id, after));
  message.meta.replaceChildren("No answer came.", again);
};

const press = async (message, pressed, button) => {
  const all = [...message.buttons.children];
  for (const other of all) other.disabled = true;
  pressed.setAttribute("aria-busy", "true");
  message.classList.remove("failed");
  message.meta.textContent = "";
  button.client_id ??= freshId();
  const sent = await post("chat/presses", { client_id: button.client_id, token: button.token, message_id: message.messageId });
  pressed.removeAttribute("aria-busy");
  if (sent) return;
  for (const other of all) other.disabled = false;
  message.classList.add("failed");
  message.meta.textContent = "No answer came. Press again: it counts once.";
};

// ---- showing

const messageOf = (id, from) => {
  const known = messages.get(id);
  if (known) return known;
  const message = make("li", `message ${from}`);
  message.messageId = id;
  message.append(make("span", "unseen", from === "bot" ? "The bot: " : "You: "));
  for (const part of ["bubble", "files", "buttons", "meta"]) {
    message[part] = make("div", part);
    message.append(message[part]);
  }
  messages.set(id, message);
  empty.hidden = true;
  log.append(message);
  return message;
};

const sizeOf = (bytes) => {
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1e6 ? `${Math.round(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
};

const fileCard = (file) => {
  const link = make("a", PICTURES.has(file.mime_type) ? "picture" : "file");
  link.href = file.link;
  link.download = file.filename;
  if (PICTURES.has(file.mime_type)) {
    const image = make("img");
    image.src = file.link;
    image.alt = file.filename;
    image.addEventListener("load", () => { if (atEnd()) toEnd(); });
    link.append(image);
    return link;
  }
  const ending = file.filename.includes(".") ? file.filename.split(".").pop().slice(0, 4) : "file";
  const words = make("span");
  words.append(make("span", "name", file.filename), make("span", "size", `${sizeOf(file.size)} · Download`));
  const kind = make("span", "kind", ending.toUpperCase());
  kind.setAttribute("aria-hidden", "true");
  link.append(kind, words);
  return link;
};

const buttonOf = (message, button) => {
  const element = make("button", button.style, button.label);
  element.type = "button";
  element.addEventListener("click", () => press(message, element, button));
  return element;
};

const show = (entry) => {
  // An edit replaces the words and buttons of a message that is there, and brings none of its own.
  const message = messageOf(entry.edits ?? entry.message_id, entry.from);
  message.settled = true;
  if (entry.from === "bot") message.bubble.innerHTML = entry.html; // made safe by the server
  else message.bubble.textContent = entry.text ?? "";
  if (!entry.edits || entry.media.length) message.files.replaceChildren(...entry.media.map(fileCard));
  const buttons = (entry.buttons ?? []).map((button) => buttonOf(message, button));
  message.buttons.replaceChildren(...buttons);
  message.className = `message ${entry.from}${buttons.length ? " asks" : ""}`;
  message.meta.textContent = clock(entry.at);
  if (entry.from !== "bot") return;
  if (!entry.edits) shown = entry.message_id;
  stopTyping();
};

let typingEnds;
const stopTyping = () => { clearTimeout(typingEnds); typing.hidden = true; };
const startTyping = () => {
  clearTimeout(typingEnds);
  typingEnds = setTimeout(stopTyping, TYPING_MS);
  following(() => { typing.hidden = false; });
};

const setState = (name) => {
  if (state.dataset.state === "ended") return;
  state.dataset.state = name;
  state.textContent = STATES[name];
};

// ---- listening: the browser reconnects by itself; after a refusal it does not, so we do

const refused = async (path) => {
  const asked = new AbortController();
  try {
    return (await fetch(path, { signal: asked.signal })).status === 401;
  } catch {
    return false;
  } finally {
    asked.abort();
  }
};

const listen = (path, handlers, onState = () => {}) => {
  const source = new EventSource(path());
  source.addEventListener("open", () => onState("open"));
  source.addEventListener("error", async () => {
    onState("lost");
    if (source.readyState !== EventSource.CLOSED) return;
    if (await refused(path())) return onState("ended");
    await wait(3000);
    listen(path, handlers, onState);
  });
  for (const [name, handle] of Object.entries(handlers)) {
    source.addEventListener(name, (event) => handle(JSON.parse(event.data), Number(event.lastEventId)));
  }
};

listen(() => `chat/events?after=${last}`, {
  message: (entry, seq) => {
    if (seq <= last) return;
    last = seq;
    following(() => show(entry));
  },
  typing: startTyping,
}, setState);

// ---- composer

const submit = () => {
  const words = text.value.trim();
  if (!words) return;
  text.value = "";
  text.focus();
  say(words);
};

at("composer").addEventListener("submit", (event) => { event.preventDefault(); submit(); });
text.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); submit(); }
});

// ---- console

const KINDS = [
  ["bad", /error|fail|dead|unknown|doubt|drift/],
  ["good", /outcome|done|executed|effect.finished/],
  ["ask", /ask|pending|prompt|confirm|decision|decided|cancel|expire|press/],
  ["tool", /tool|effect/],
];
const EMPTY = new Set(["null", '""', "{}", "[]"]);

const showNotice = ({ at: when, name, fields }) => {
  const { tool, conversation, ...rest } = fields; // there is one conversation beside the console: no need to name it
  const notice = make("li", `notice ${KINDS.find(([, pattern]) => pattern.test(name))?.[0] ?? ""}`);
  const line = make("div", "line");
  const what = name.replaceAll(/[._]/g, " ") + (tool ? ` · ${tool}` : "");
  line.append(make("span", "what", what), make("time", "", clock(when, true)));
  const facts = make("dl");
  notice.append(line, facts);
  for (const [key, value] of Object.entries(rest)) {
    const words = typeof value === "string" ? value : JSON.stringify(value);
    const label = key.replaceAll("_", " ");
    if (EMPTY.has(JSON.stringify(value))) continue;
    if (words.includes("\nTraceback ") || words.startsWith("Traceback ")) {
      const details = make("details");
      details.open = true;
      details.append(make("summary", "", label), make("pre", "", words.trimEnd()));
      notice.append(details);
    } else {
      facts.append(make("dt", "", label), make("dd", "", words));
    }
  }
  return notice;
};

if (document.body.dataset.console === "on") {
  const panel = at("console"), notices = at("notices"), toggle = at("toggle");
  let lastNotice = 0;
  listen(() => "chat/console", {
    notice: (notice, seq) => {
      if (seq <= lastNotice) return;
      lastNotice = seq;
      const follow = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 80;
      notices.append(showNotice(notice));
      while (notices.children.length > 500) notices.firstChild.remove();
      if (follow) panel.scrollTop = panel.scrollHeight;
    },
  });
  toggle.addEventListener("click", () => {
    const open = document.body.toggleAttribute("data-show-console");
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? "Chat" : "Console";
  });
}
