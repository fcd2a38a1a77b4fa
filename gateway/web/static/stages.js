// How one step of a message's life is shown: its name, its durations, what it holds, and the command that mends it.

import { make } from "./make.js";

const LONG = 200; // characters of a value that is folded up
const LINES = 4;
const EMPTY = new Set(["null", "false", '""', "{}", "[]"]);
// The ids that tie the events together. The console has tied them.
const IDS = new Set([
  "run_id", "conversation", "address", "event_id", "event_ids", "cause", "call_id", "part_id", "parts", "action", "actions",
]);
const IN_THE_LINE = new Set(["milliseconds", "total_tokens", "cached_tokens", "cost_usd"]);
const STAGES = {
  message_received: "received", turn_start: "turn", turn_end: "turn_end", event_settled: "turn_end",
  llm_start: "model", llm_end: "model", llm_error: "model", tool_start: "tool", tool_end: "tool", tool_error: "tool",
  pending_stashed: "asked", pending_decided: "decided", pending_launched: "launched", effect_end: "effect",
  pending_resolved: "ended", message_sent: "sent", artifact_delivered: "file",
  delivery_retried: "not_sent", delivery_failed: "not_delivered",
};

// What is named in the line: `Tool · delete_invoice`, `Turn ends · answered`.
const ABOUT = [
  [/^llm_/, "model"], [/^turn_end$/, "stop_reason"], [/^event_settled$/, "how"], [/^pending_decided$/, "intent"],
  [/^(message_sent|delivery_retried)$/, "call"], [/./, "tool"],
];
const aboutOf = ({ name, fields }) => ABOUT.find(([pattern, key]) => pattern.test(name) && fields[key])?.[1];

// What the other fields of the same stage, or the line of its message, say already.
const isRepeated = (key, value, { name, fields, where }) =>
  (key === "attempt" && value === 1)
  || (/^llm_/.test(name) && /^(messages|calls)$/.test(key))
  || (key === "finish" && /^(stop|tools)$/.test(value))
  || (key === "provider" && value === fields.model)
  || (key === "how" && value === fields.stop_reason)
  || (key === "status" && value === fields.state)
  || (key === "received" && value === true) // the arrival is a step of its own
  || (name === "message_received" && (key === "kind" || (key === "person" && value === where)));

// By what came of it, not by what it is called: an effect can finish and have failed.
export const toneOf = (name, { state, status, stop_reason: stopped, how, suppressed }) => {
  const what = `${name} ${state ?? ""} ${status ?? ""} ${stopped ?? ""} ${how ?? ""}`;
  if (suppressed === true) return "wait";
  if (/fail|error|lost|doubt|not_stored|rejected|put aside/.test(what)) return "bad";
  if (/unknown|asked|stashed|retr|timeout|budget|warning|iterations|loop|veto|denied|refused|expired/.test(what)) return "wait";
  if (/_end|_sent|delivered|resolved|settled|decided/.test(what)) return "good";
  return /_start|launched|received/.test(what) ? "begun" : "";
};

export const span = (milliseconds) => {
  if (milliseconds < 1) return "<1 ms";
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  return milliseconds < 60_000 ? `${(milliseconds / 1000).toFixed(1)} s` : `${Math.round(milliseconds / 60_000)} min`;
};

export const words = (name) => name.replaceAll(/[._]/g, " ");

// The ends that people know too have the page's words for them.
const ENDS = new Map(Object.entries({
  answered: "end_answered", asked: "end_asked", command: "end_command", decided: "end_decided", stopped: "end_stopped",
  cancelled: "end_stopped", confirm: "end_confirm", cancel: "end_cancel", "decided by button": "end_button",
  "decided by code": "end_code", "decided by reply": "end_reply", "decided by /stop": "end_stopped",
  done: "end_done", failed: "end_failed", refused: "end_refused", expired: "end_expired", unknown: "end_unknown",
}));
export const endOf = (end, { texts }) => texts[ENDS.get(end)] ?? words(String(end));

const LABELS = { artifacts: "files", reason: "why", status: "state", stop_reason: "how" };
const labelOf = (key, texts) => texts[`field_${LABELS[key] ?? key}`] ?? words(key);
const ENDED = new Set(["how", "intent", "state", "status", "stop_reason"]);

// The use of models: no tokens and no price is no use. A price that is not known is never 0.
export const useOf = (tokens, cost, { texts, locale }) => {
  const shown = [];
  if (tokens) shown.push(texts.console_tokens.replace("{n}", tokens.toLocaleString(locale)));
  const money = { style: "currency", currency: "USD", maximumFractionDigits: 6 };
  if (typeof cost === "number") shown.push(cost.toLocaleString(locale, money));
  else if (tokens) shown.push(texts.console_no_price);
  return shown;
};

const valueOf = (value) => {
  const text = typeof value === "string" ? value : JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  if (text.length <= LONG && text.split("\n").length <= LINES) return text;
  const whole = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const details = make("details"), summary = make("summary", "", `${text.slice(0, 80).split("\n")[0]}…`);
  details.append(summary, make("pre", "", whole));
  return details;
};

const isTraceback = (value) => typeof value === "string" && /^(.*\n)?Traceback /.test(value);

const tracebackOf = (label, value) => {
  const details = make("details", "traceback");
  details.open = true;
  details.append(make("summary", "", label), make("pre", "", value.trimEnd()));
  return details;
};

const factsOf = (stage, page) => {
  const { name, fields } = stage, facts = make("dl"), tracebacks = [], about = aboutOf(stage);
  for (const [key, value] of Object.entries(fields)) {
    if (key === about || IDS.has(key) || IN_THE_LINE.has(key) || isRepeated(key, value, stage)) continue;
    if (EMPTY.has(JSON.stringify(value))) continue;
    const label = labelOf(name === "message_sent" && key === "message_id" ? "receipt" : key, page.texts);
    if (isTraceback(value)) {
      tracebacks.push(tracebackOf(label, value));
      continue;
    }
    const shown = make("dd");
    shown.dir = "auto";
    shown.append(valueOf(ENDED.has(key) ? endOf(value, page) : key === "files" ? value.join(", ") : value));
    facts.append(make("dt", "", label), shown);
  }
  return facts.childElementCount ? [facts, ...tracebacks] : tracebacks;
};

const BEGAN = {
  Message: "began_message", ButtonPress: "began_press", AnswerStopped: "began_stop", Feedback: "began_rating",
};
// What a platform sent, by the name of its class: `ButtonPress`.
export const arrivalOf = (kind, texts) =>
  texts[BEGAN[kind]] ?? kind.replaceAll(/(?<=[a-z])(?=[A-Z])/g, " ");

export const titleOf = (stage, page) => {
  const { texts } = page, { name, fields } = stage, about = aboutOf(stage);
  const title = name === "feedback" ? texts.began_rating : texts[`stage_${STAGES[name]}`] ?? words(name);
  if (name === "message_received" && fields.kind) return `${title} · ${arrivalOf(fields.kind, texts)}`;
  return about ? `${title} · ${ENDED.has(about) ? endOf(fields[about], page) : fields[about]}` : title;
};

// `beside` stands at the end of the line: the time since the arrival, or the clock.
export const stageOf = (stage, beside, page) => {
  const { name, fields, tone, mend } = stage;
  const element = make("li", `stage ${tone}`), line = make("div", "line");
  const what = make("span", "what", titleOf(stage, page));
  what.title = name;
  if (tone === "bad") what.append(make("span", "unseen", ` (${page.texts.failed})`));
  line.append(what);
  if (typeof fields.milliseconds === "number") line.append(make("span", "took", span(fields.milliseconds)));
  const used = useOf(fields.total_tokens, fields.cost_usd, page);
  if (used.length) line.append(make("span", "used", used.join(" · ")));
  line.append(...beside);
  element.append(line, ...factsOf(stage, page));
  if (mend) {
    const remedy = make("p", "mend", `${page.texts.console_mend} `);
    remedy.append(make("code", "", mend));
    element.append(remedy);
  }
  return element;
};
