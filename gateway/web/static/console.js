// The console beside the conversation: the life of each message, by conversation, as it happens.

import { Life } from "./lives.js";
import { make } from "./make.js";
import { stageOf, toneOf } from "./stages.js";
import { withChat } from "./visit.js";

const MOST = 2000; // notices that are kept; the messages that were quiet for longest go first
const MOST_OTHERS = 300;

const at = (id) => document.getElementById(id);

export const openConsole = (listen, page) => {
  const { texts, clock } = page;
  const panel = at("console"), list = at("lives"), others = at("others"), others_list = at("notices"), none = at("none");
  const channel = at("channel"), filter = at("filter"), failed = at("failed"), pause = at("pause"), toggle = at("toggle");
  const lives = new Map(); // run -> its life; the one that was quiet for longest is first
  const places = new Map(); // conversation -> its element
  let last = 0, kept = 0, waiting = null; // what has come since the pause
  let newest = null, opened = null; // of this chat, the life that is shown open by itself
  const changed = new Set(); // lives whose lines are written with the next frame
  let frame = 0;

  // ---- the filter

  const fits = (words, where, isBad) =>
    (!channel.value || where.startsWith(`${channel.value}:`)) && (isBad || !failed.checked)
    && words.includes(filter.value.trim().toLowerCase());
  const hide = (element, isHidden) => {
    if (element.hidden !== isHidden) element.hidden = isHidden;
  };
  const siftLife = (life) => {
    hide(life.element, !fits(`${life.place.where} ${life.text}`.toLowerCase(), life.place.where, life.tone === "bad"));
  };
  const siftPlace = (place) => hide(place, !place.querySelector(".run:not([hidden])"));
  const siftOther = (other) => hide(other, !fits(other.words, other.where, other.classList.contains("bad")));
  const count = () => {
    const shown = others_list.querySelectorAll(":scope > :not([hidden])").length;
    others.hidden = !shown;
    at("others_count").textContent = shown.toLocaleString(page.locale);
    none.hidden = !(lives.size || others_list.childElementCount) || Boolean(shown || list.querySelector(":scope > :not([hidden])"));
  };
  const sift = () => {
    for (const life of lives.values()) siftLife(life);
    for (const place of places.values()) siftPlace(place);
    for (const other of others_list.children) siftOther(other);
    count();
  };
  for (const [input, event] of [[channel, "change"], [filter, "input"], [failed, "change"]]) input.addEventListener(event, sift);

  const offer = (where) => {
    const name = where.split(":")[0];
    if (!name || [...channel.options].some(({ value }) => value === name)) return;
    const option = make("option", "", name);
    option.value = name;
    channel.append(option);
  };

  // ---- conversations and lives

  const placeOf = ({ where, here }) => {
    const known = places.get(where);
    if (known) return known;
    const place = make("li", "place"), details = make("details"), line = make("summary"), head = make("h3");
    const name = make("bdi", here ? "here" : "", here ? texts.console_here : where || texts.console_other);
    head.title = where;
    head.append(name);
    line.append(head);
    details.open = true;
    place.runs = make("ol", "runs");
    details.append(line, place.runs);
    place.append(details);
    place.where = where;
    places.set(where, place);
    offer(where);
    return place;
  };

  // The element that has the focus keeps it when its conversation goes to the top.
  const toTop = (parent, element) => {
    if (parent.firstChild === element) return;
    const focused = element.contains(document.activeElement) ? document.activeElement : null;
    parent.prepend(element);
    focused?.focus({ preventScroll: true });
  };

  const remove = (life) => {
    lives.delete(life.run);
    changed.delete(life);
    life.element.remove();
    const { place } = life;
    if (place.runs.childElementCount) return;
    place.remove();
    places.delete(place.where);
  };

  const openNewest = () => {
    if (!newest || newest === opened) return;
    if (opened && !opened.isTouched) opened.details.open = false;
    opened = newest;
    opened.details.open = true;
  };

  const lifeOf = (notice) => {
    const known = lives.get(notice.run);
    lives.delete(notice.run); // to the end of the order
    const life = known ?? new Life(notice.run, page);
    lives.set(notice.run, life);
    if (known) return life;
    life.place = placeOf(notice);
    life.line.addEventListener("click", () => { life.isTouched = true; });
    toTop(life.place.runs, life.element);
    return life;
  };

  const live = (notice) => {
    const life = lifeOf(notice);
    life.add(notice);
    kept += 1;
    for (const run of notice.joins) {
      const other = lives.get(run);
      if (!other || other === life) continue;
      life.join(other);
      remove(other);
    }
    toTop(list, life.place);
    changed.add(life);
    if (notice.here) newest = life;
    while (kept > MOST && lives.size > 1) {
      const [oldest] = lives.values();
      kept -= oldest.notices.length;
      remove(oldest);
    }
  };

  // ---- events of no message

  const other = (notice) => {
    const { name, fields, where, here } = notice;
    const place = make("span", "where", here ? texts.console_here : where || fields.channel || "");
    const element = stageOf({ ...notice, tone: toneOf(name, fields) }, [place, make("time", "", clock(notice.at, true))], page);
    element.words = `${name} ${where} ${JSON.stringify(fields)}`.toLowerCase();
    element.where = where || `${fields.channel ?? ""}:`;
    offer(element.where);
    others_list.prepend(element);
    siftOther(element);
    if (others_list.childElementCount > MOST_OTHERS) others_list.lastChild.remove();
  };

  // ---- what comes, and the buttons

  const drawn = () => {
    frame = 0;
    for (const life of changed) {
      life.write();
      siftLife(life);
      siftPlace(life.place);
    }
    changed.clear();
    openNewest();
    count();
  };

  const show = (notice) => {
    if (notice.run) live(notice); else other(notice);
    frame ||= requestAnimationFrame(drawn);
  };

  const write = () => {
    pause.setAttribute("aria-pressed", String(waiting !== null));
    pause.textContent = waiting?.length ? `${texts.console_pause} (${waiting.length.toLocaleString(page.locale)})` : texts.console_pause;
  };

  pause.addEventListener("click", () => {
    const came = waiting;
    waiting = came ? null : [];
    for (const notice of came ?? []) show(notice);
    write();
  });

  at("clear").addEventListener("click", () => {
    for (const known of [lives, places, changed]) known.clear();
    list.replaceChildren();
    others_list.replaceChildren();
    kept = 0;
    newest = opened = null;
    if (waiting) waiting = [];
    write();
    count();
  });

  listen(() => withChat("chat/console"), {
    notice: (told, seq) => {
      if (seq <= last) return;
      last = seq;
      const notice = { ...told, seq };
      if (!waiting) return show(notice);
      waiting.push(notice);
      if (waiting.length > MOST) waiting.shift();
      write();
    },
  });

  toggle.addEventListener("click", () => {
    const open = document.body.toggleAttribute("data-show-console");
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? texts.chat : texts.console;
  });
};
