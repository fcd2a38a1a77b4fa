// Where the page is: which chat, and whether another site shows it in a frame. A framed page asks that site who is logged
// in. The answer, a token, is kept in memory alone and sent in a header, never in an address.

const TOKEN_MS = 3000; // a site that has not answered by then hands no token
const RELOAD_MS = 30_000;
const TOKEN = /^[\x21-\x7e]{0,6000}$/;

const origins = JSON.parse(document.body.dataset.origins); // of the sites that may frame the page; null: not framed
const framed = origins !== null && window.parent !== window;
const asked = new URLSearchParams(location.search).get("chat");
let token = "", begun = false;
let { visit } = document.body.dataset; // a name of the session

// The id of the chat, null for the first one of the person.
export const chat = /^[\w-]{22}$/.test(asked ?? "") ? asked : null;
export const here = chat ? { chat } : {};
export const headers = () => (framed ? { "X-Askfirst-User": token } : {});
// The draft is of this chat and session: the next person at this screen does not read it.
export const draftKey = () => `draft ${visit} ${chat ?? ""}`;
export const withChat = (path) => (chat ? `${path}${path.includes("?") ? "&" : "?"}chat=${chat}` : path);
export const addressOf = (id) => `chat?${new URLSearchParams({ ...(framed && { embed: "" }), ...(id && { chat: id }) })}`;

// A stream with the header, for which EventSource has no place. It ends after any error, and is opened anew by its reader.
class HeaderStream extends EventTarget {
  readyState = EventSource.CONNECTING;

  constructor(path) {
    super();
    this.#read(path).catch(() => {}).finally(() => {
      this.readyState = EventSource.CLOSED;
      this.dispatchEvent(new Event("error"));
    });
  }

  async #read(path) {
    const answer = await fetch(path, { headers: headers() });
    if (!answer.ok) return;
    this.readyState = EventSource.OPEN;
    this.dispatchEvent(new Event("open"));
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = "";;) {
      const { done, value } = await reader.read();
      if (done) return;
      const events = (rest + value).split("\n\n");
      rest = events.pop();
      for (const event of events) this.#tell(event);
    }
  }

  #tell(event) {
    const fields = Object.fromEntries(event.split("\n").map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 2)]));
    if (fields.retry) this.retry = Number(fields.retry);
    if (fields.event) this.dispatchEvent(new MessageEvent(fields.event, { data: fields.data, lastEventId: fields.id ?? "" }));
  }
}

export const openStream = (path) => (framed ? new HeaderStream(path) : new EventSource(path));

// Another person is logged in around a framed page: it begins anew as theirs. Its own reload button is out of sight.
export const onEnded = () => {
  const reloaded = Number(sessionStorage.getItem("reloaded"));
  if (!framed || Date.now() - reloaded < RELOAD_MS) return;
  sessionStorage.setItem("reloaded", Date.now());
  location.reload();
};

// Messages come from the window around alone, and go to the sites on the list alone.
const toSite = (message) => {
  const around = location.ancestorOrigins?.[0];
  for (const origin of around ? origins.filter((each) => each === around) : origins) parent.postMessage(message, origin);
};

const isRefused = async () => {
  try {
    return (await fetch("chat/chats", { headers: headers() })).status === 401;
  } catch {
    return false; // no connection: the next request tells
  }
};

// The site may hand another token at any time: of the same person, or of another one.
const ofSite = () => new Promise((done) => {
  addEventListener("message", async ({ source, origin, data }) => {
    if (source !== parent || !origins.includes(origin) || data?.askfirst !== "user") return;
    const given = typeof data.token === "string" && TOKEN.test(data.token) ? data.token : "";
    const changed = begun && given !== token;
    token = given;
    done();
    if (changed && await isRefused()) location.reload();
  });
  setTimeout(done, TOKEN_MS);
  toSite({ askfirst: "ready" });
});

const begin = async () => {
  try {
    const sent = { ...headers(), "Content-Type": "application/json" };
    const answer = await fetch("chat/session", { method: "POST", headers: sent, body: "{}" });
    if (answer.ok) ({ visit } = await answer.json());
    begun = answer.ok;
  } catch { /* no connection: it is tried again */ }
  if (begun) return;
  await new Promise((done) => setTimeout(done, 3000));
  await begin();
};

if (origins !== null && !framed) location.replace(addressOf(chat)); // opened by itself
if (framed) {
  addEventListener("keydown", ({ key }) => {
    if (key === "Escape" && !document.querySelector(":popover-open")) toSite({ askfirst: "close" });
  });
  const main = document.querySelector("main");
  main.inert = true; // words of a person before the session would get lost
  await ofSite();
  await begin();
  main.inert = false;
  document.getElementById("text").focus();
}
