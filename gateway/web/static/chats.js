// The list of the person's chats, a new chat, and the end of the session.

import { make } from "./make.js";
import { addressOf, chat, headers } from "./visit.js";

const AGAIN_MS = 5000;

const at = (id) => document.getElementById(id);

// 128 random bits, as base64url.
const freshChat = () =>
  btoa(String.fromCharCode(...crypto.getRandomValues(new Uint8Array(16)))).replace(/[+/=]/g, (sign) => ({ "+": "-", "/": "_" })[sign] ?? "");

export const openChats = ({ texts, locale, onEnded }) => {
  const panel = at("chats"), list = at("listed"), none = at("no_chats"), end = at("end_session");
  const when = (iso) => new Date(iso).toLocaleString(locale, { dateStyle: "medium", timeStyle: "short" });

  const itemOf = (each) => {
    const item = make("li"), link = make("a");
    link.href = addressOf(each.chat);
    if (each.chat === chat) link.setAttribute("aria-current", "page");
    const title = make("span", "title", each.title || texts.chat), time = make("time", "", when(each.at));
    title.dir = "auto";
    time.dateTime = each.at;
    link.append(title, time);
    item.append(link);
    return item;
  };

  const show = async () => {
    try {
      const answer = await fetch("chat/chats", { headers: headers() });
      if (answer.status === 401) onEnded();
      if (!answer.ok) return;
      const { chats } = await answer.json();
      list.replaceChildren(...chats.map(itemOf));
      none.hidden = chats.length > 0;
    } catch { /* no connection: the list stays as it was */ }
  };

  panel.addEventListener("toggle", ({ newState }) => { if (newState === "open") show(); });
  at("new_chat").addEventListener("click", () => location.assign(addressOf(freshChat())));

  let sure;
  end.addEventListener("click", async () => {
    if (!sure) {
      end.textContent = texts.end_session_again;
      sure = setTimeout(() => { sure = null; end.textContent = texts.end_session; }, AGAIN_MS);
      return;
    }
    const sent = { ...headers(), "Content-Type": "application/json" };
    try {
      if (!(await fetch("chat/logout", { method: "POST", headers: sent, body: "{}" })).ok) return;
    } catch {
      return; // no connection: the session goes on
    }
    sessionStorage.clear();
    panel.hidePopover();
    onEnded();
  });
};
