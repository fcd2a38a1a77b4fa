// The life of one message, from its arrival to the receipt of its reply: a line, and its stages when it is opened.

import { make } from "./make.js";
import { arrivalOf, endOf, span, stageOf, titleOf, toneOf, useOf } from "./stages.js";

const MOST = 500; // stages of one life. The first is its arrival, and is kept
const TITLE = 120; // characters

// A stage is told at its begin and at its end, or as it happens and once it is stored: by this key they are one.
const KEYS = [
  [/^llm_(start|end|error)$/, () => "model"],
  [/^tool_(start|end|error)$/, ({ call_id: call }) => call && `tool ${call}`],
  [/^pending_decided$/, ({ action }) => `decided ${action}`],
  [/^event_settled$/, ({ how, actions }) => (/^decided/.test(how) && actions?.length ? `decided ${actions[0]}` : "turn")],
  [/^turn_end$/, () => "turn"],
  [/^(effect_end|pending_resolved)$/, ({ action }) => `effect ${action}`],
];
const keyOf = ({ name, fields }) => KEYS.find(([pattern]) => pattern.test(name))?.[1](fields);

export class Life {
  constructor(run, page) {
    this.run = run;
    this.page = page;
    this.notices = [];
    this.isShown = false;
    this.element = make("li", "run");
    this.details = make("details");
    this.line = make("summary");
    this.list = make("ol", "life");
    const id = make("p", "id", `${page.texts.field_run} `);
    id.append(make("code", "", run)); // as in the log and in the trace
    this.details.append(this.line, this.list, id);
    this.element.append(this.details);
    this.details.addEventListener("toggle", () => this.show());
    this.begin();
  }

  begin() {
    this.stages = [];
    this.open = new Map(); // key -> the stage that it will end
    this.told = new Set(); // what is shown once: the question of an action, the model's instructions
    this.calls = new Set();
    this.ends = new Set();
    this.text = this.tone = this.title = this.began = this.who = "";
    this.milliseconds = this.tokens = this.cost = this.arrival = null;
    this.isPriceless = false;
    this.time = null;
    this.list.replaceChildren();
  }

  add(notice) {
    this.notices.push(notice);
    if (this.notices.length > MOST) this.notices.splice(1, 1);
    this.count(notice);
    this.fold(notice);
  }

  // Another life turns out to be a part of this one.
  join(other) {
    const notices = [...this.notices, ...other.notices].sort((one, two) => one.seq - two.seq);
    this.begin();
    this.notices = notices.length > MOST ? [notices[0], ...notices.slice(1 - MOST)] : notices;
    for (const notice of this.notices) {
      this.count(notice);
      this.fold(notice);
    }
  }

  count({ name, fields, at }) {
    this.arrival ??= Date.parse(at);
    this.text += ` ${name} ${JSON.stringify(fields)}`.toLowerCase();
    if (name === "message_received" && !this.began) {
      this.began = fields.kind;
      this.who = fields.person;
    }
    this.title ||= fields.said || fields.files?.join(", ") || "";
    if (name === "turn_end") this.milliseconds = (this.milliseconds ?? 0) + fields.milliseconds;
    if (name === "llm_end" && !fields.from_checkpoint) this.spend(fields);
    if (fields.call_id) this.calls.add(fields.call_id);
    const end = fields.stop_reason ?? fields.status ?? fields.how;
    if (/^(turn_end|pending_resolved|event_settled)$/.test(name) && end) this.ends.add(end);
  }

  spend({ total_tokens: tokens, cost_usd: cost }) {
    this.tokens = (this.tokens ?? 0) + tokens;
    if (typeof cost === "number") this.cost = (this.cost ?? 0) + cost;
    else if (tokens) this.isPriceless = true;
  }

  fold(notice) {
    const key = keyOf(notice), begun = key && this.open.get(key), tone = toneOf(notice.name, notice.fields);
    if (tone === "bad") this.tone = "bad";
    if (begun && begun.name !== notice.name) {
      this.open.delete(key);
      const name = /^(event_settled|pending_resolved)$/.test(notice.name) ? begun.name : notice.name;
      const fields = { ...begun.fields, ...this.news(notice) };
      const merged = { name, fields, tone: begun.tone === "bad" ? "bad" : tone, mend: notice.mend || begun.mend };
      Object.assign(begun, merged);
      if (begun.element) begun.element.replaceWith(this.render(begun));
      return;
    }
    const { name, at, mend, where } = notice;
    const stage = { name, at, mend, where, tone, fields: this.news(notice) };
    if (key) this.open.set(key, stage);
    this.stages.push(stage);
    if (this.stages.length > MOST) this.stages.splice(1, 1)[0].element?.remove();
    if (this.isShown) this.list.append(this.render(stage));
  }

  // The arguments and the question are shown once, where the action is met first; so are the model's instructions.
  news({ fields }) {
    const shown = { ...fields };
    const isTold = (about) => about === undefined || this.told.has(about) || !this.told.add(about);
    if (fields.action !== undefined && isTold(fields.action)) for (const key of ["args", "preview"]) delete shown[key];
    if (isTold(fields.system_prompt)) delete shown.system_prompt;
    if (fields.said === this.title && fields.said.length <= TITLE || isTold(fields.said)) delete shown.said;
    return shown;
  }

  render(stage) {
    const since = make("span", "since", `+${span(Math.max(0, Date.parse(stage.at) - this.arrival)).replace("<1", "0")}`);
    since.dir = "ltr";
    stage.element = stageOf(stage, [since], this.page);
    return stage.element;
  }

  // The stages are made when the life is opened: most lives never are. The browser tells of it a little later, and what
  // came in between is among them.
  show() {
    this.isShown = this.details.open;
    if (this.isShown) this.list.replaceChildren(...this.stages.map((stage) => this.render(stage)));
  }

  // What began it: a message, a press, a code, a timer. Without an arrival it is named by its first stage.
  beginning() {
    const { texts } = this.page, [first] = this.stages;
    if (this.ends.has("decided by code")) return texts.began_code;
    if (this.began) return arrivalOf(this.began, texts);
    const cause = first.fields.cause ?? first.fields.event_ids?.[0];
    return /^(expiry|undelivered|unlaunched|notify)\//.test(cause) ? texts.began_timer : titleOf(first, this.page);
  }

  // Formatting times and numbers takes most of the time, so the line is written once for all that came meanwhile.
  write() {
    const { texts, clock } = this.page, [first] = this.notices;
    this.time ??= make("time", "", clock(first.at, true));
    const top = make("span", "top"), title = make("span", "title", this.title.slice(0, TITLE) || this.beginning());
    title.dir = "auto";
    top.append(this.time, title);
    const end = [...this.ends].at(-1);
    if (this.tone === "bad" && end) top.append(make("span", "unseen", texts.failed));
    top.append(make("span", "end", end ? endOf(end, this.page) : this.tone === "bad" ? texts.failed : "…"));
    const sums = [
      ...(this.title ? [this.beginning()] : []),
      ...(this.milliseconds === null ? [] : [span(this.milliseconds)]),
      ...useOf(this.tokens, this.isPriceless ? null : this.cost, this.page),
      ...(this.calls.size ? [texts.console_tools.replace("{n}", this.calls.size)] : []),
      ...(this.who && this.who !== first.where ? [this.who] : []),
    ];
    this.line.replaceChildren(top, make("span", "sums", sums.join(" · ")));
    this.element.classList.toggle("bad", this.tone === "bad");
  }
}
