// The console beside the conversation: what happens in the bot, as it happens.

const MOST = 500; // notices that are kept
const EMPTY = new Set(["null", '""', "{}", "[]"]);
const LONG = 200; // characters of a value that is folded up
const LINES = 4;

const make = (tag, name = "", words = "") => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (words) element.textContent = words;
  return element;
};

const KINDS = [
  ["ask", /^(pending|effect|doubt)/],
  ["model", /^(llm|budget|cost)/],
  ["tool", /^(tool|policy)/],
];
const kindOf = (name) => KINDS.find(([, pattern]) => pattern.test(name))?.[0] ?? "turn";

// By what came of it, not by what it is called: an effect can finish and have failed.
const toneOf = (name, { state, status, stop_reason: stopped }) => {
  const how = `${name} ${state ?? ""} ${status ?? ""} ${stopped ?? ""}`;
  if (/fail|error|lost|doubt|not_stored|rejected/.test(how)) return "bad";
  if (/unknown|asked|stashed|timeout|budget|iterations|loop/.test(how)) return "wait";
  if (/_end|_sent|delivered|resolved/.test(how)) return "good";
  return /_start|launched/.test(how) ? "begun" : "";
};

const span = (milliseconds) => (milliseconds < 1000 ? `${milliseconds} ms` : `${(milliseconds / 1000).toFixed(1)} s`);

const valueOf = (value) => {
  const words = typeof value === "string" ? value : JSON.stringify(value, null, 1).replaceAll(/\n\s*/g, " ");
  if (words.length <= LONG && words.split("\n").length <= LINES) return words;
  const whole = typeof value === "string" ? value : JSON.stringify(value, null, 2);
  const details = make("details"), summary = make("summary", "", `${words.slice(0, 80).split("\n")[0]}…`);
  details.append(summary, make("pre", "", whole));
  return details;
};

const traceback = (words) => /^(.*\n)?Traceback /.test(words);

const show = ({ at, name, fields, where, here }, clock, texts) => {
  const { tool, conversation, milliseconds, ...rest } = fields;
  const notice = make("li", `notice ${toneOf(name, fields)}`);
  notice.kind = kindOf(name);
  const line = make("div", "line");
  const what = name.replaceAll(/[._]/g, " ") + (tool ? ` · ${tool}` : "");
  line.append(make("span", "what", what));
  if (typeof milliseconds === "number") line.append(make("span", "took", span(milliseconds)));
  const place = make("span", `where${here ? " here" : ""}`, here ? texts.console_here : where);
  place.title = where;
  line.append(place, make("time", "", clock(at, true)));
  notice.append(line);
  const facts = make("dl");
  notice.append(facts);
  for (const [key, value] of Object.entries(rest)) {
    const label = key.replaceAll("_", " ");
    if (EMPTY.has(JSON.stringify(value))) continue;
    if (typeof value === "string" && traceback(value)) {
      const details = make("details", "traceback");
      details.open = true;
      details.append(make("summary", "", label), make("pre", "", value.trimEnd()));
      notice.append(details);
    } else {
      const shown = make("dd");
      shown.append(valueOf(value));
      facts.append(make("dt", "", label), shown);
    }
  }
  notice.words = `${what} ${where} ${JSON.stringify(fields)}`.toLowerCase();
  return notice;
};

export const openConsole = (listen, clock, texts) => {
  const at = (id) => document.getElementById(id);
  const panel = at("console"), notices = at("notices"), toggle = at("toggle");
  const kind = at("kind"), filter = at("filter"), none = at("none");
  let last = 0;

  const fits = (notice) => {
    const isKind = kind.value === "problem" ? notice.classList.contains("bad") : !kind.value || notice.kind === kind.value;
    return isKind && notice.words.includes(filter.value.trim().toLowerCase());
  };
  const sift = () => {
    for (const notice of notices.children) notice.hidden = !fits(notice);
    none.hidden = !notices.children.length || Boolean(notices.querySelector(":scope > :not([hidden])"));
  };
  kind.addEventListener("change", sift);
  filter.addEventListener("input", sift);
  at("clear").addEventListener("click", () => { notices.replaceChildren(); sift(); });

  listen(() => "chat/console", {
    notice: (told, seq) => {
      if (seq <= last) return;
      last = seq;
      const follow = panel.scrollHeight - panel.scrollTop - panel.clientHeight < 80;
      const notice = show(told, clock, texts);
      notice.hidden = !fits(notice);
      notices.append(notice);
      if (!notice.hidden) none.hidden = true;
      while (notices.children.length > MOST) notices.firstChild.remove();
      if (follow) panel.scrollTop = panel.scrollHeight;
    },
  });
  toggle.addEventListener("click", () => {
    const open = document.body.toggleAttribute("data-show-console");
    toggle.setAttribute("aria-expanded", String(open));
    toggle.textContent = open ? texts.chat : texts.console;
    panel.scrollTop = panel.scrollHeight;
  });
};
