// What stands beneath a message of the bot: copy it, rate it, and say the last words again.

import { make } from "./make.js";

const COPIED_MS = 2000;
const ICONS = {
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  up: "M7 11v9H4v-9zm0 0 4-8a2 2 0 0 1 2.6 2.4L13 9h5.6a2 2 0 0 1 2 2.4l-1.5 7a2 2 0 0 1-2 1.6H7",
  down: "M17 13V4h3v9zm0 0-4 8a2 2 0 0 1-2.6-2.4L11 15H5.4a2 2 0 0 1-2-2.4l1.5-7a2 2 0 0 1 2-1.6H17",
  retry: "M4 12a8 8 0 1 0 2.3-5.6L4 8.7M4 4v4.7h4.7",
};

const iconOf = (name) => {
  const [icon, path] = ["svg", "path"].map((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));
  icon.setAttribute("viewBox", "0 0 24 24");
  icon.setAttribute("aria-hidden", "true");
  path.setAttribute("d", ICONS[name]);
  icon.append(path);
  return icon;
};

const buttonOf = (name, label, act) => {
  const button = make("button", name);
  button.type = "button";
  button.title = label;
  button.setAttribute("aria-label", label);
  button.append(iconOf(name));
  button.addEventListener("click", () => act(button));
  return button;
};

// Copies words, and says so on the button. Where the browser does not allow it, what is selected can be copied by hand.
export const copy = async (button, words, shown, texts) => {
  try {
    await navigator.clipboard.writeText(words);
  } catch {
    getSelection().selectAllChildren(shown);
    return;
  }
  const { title } = button;
  const say = (label) => {
    if (title) { button.title = label; button.setAttribute("aria-label", label); } else button.textContent = label;
  };
  say(texts.copied);
  button.classList.add("copied");
  setTimeout(() => {
    say(title || texts.copy);
    button.classList.remove("copied");
  }, COPIED_MS);
};

const isQuestion = (message, { asks, settled }) =>
  Boolean(asks?.length || settled?.length) || message.classList.contains("asks");

export const openAnswers = ({ texts, log, post, freshId, say, messages }) => {
  let words = null; // the person's last words, as long as they may be said again

  const rate = (message, value) => {
    message.rating = value;
    for (const button of message.acts.querySelectorAll("[aria-pressed]")) {
      button.setAttribute("aria-pressed", String(button.classList.contains(value)));
    }
  };
  const thumbOf = (message, value) => {
    const button = buttonOf(value, value === "up" ? texts.good_answer : texts.bad_answer, async () => {
      const before = message.rating, now = before === value ? null : value;
      rate(message, now);
      const body = { client_id: freshId(), message_id: message.messageId, feedback: now };
      if (!await post("chat/feedback", body) && message.rating === now) rate(message, before);
    });
    button.setAttribute("aria-pressed", "false");
    return button;
  };

  const again = buttonOf("retry", texts.say_again, () => {
    again.remove();
    say(words);
  });

  // Words that led to a question, or after which one ended, are not said again by a press: they could mean another one.
  const follow = (message, entry) => {
    if (entry.from === "person") words = entry.media.length || entry.text.startsWith("/") ? null : entry.text;
    else if (entry.edits || isQuestion(message, entry)) words = null;
    const newest = entry.from === "bot" ? log.lastElementChild : null;
    again.remove();
    if (words && newest?.acts && !log.querySelector(".asks")) newest.acts.append(again);
  };

  return {
    shown: (message, entry) => {
      if (entry.from === "bot") {
        message.words = entry.text;
        if (!message.acts && message.bubble.childElementCount) {
          message.acts = make("div", "acts");
          const copied = () => message.words ?? message.bubble.innerText;
          message.acts.append(buttonOf("copy", texts.copy_message, (button) => copy(button, copied(), message.bubble, texts)));
          if (!isQuestion(message, entry)) message.acts.append(thumbOf(message, "up"), thumbOf(message, "down"));
          message.foot.append(message.acts);
        }
      }
      follow(message, entry);
    },
    rated: ({ message_id: id, value }) => {
      const message = messages.get(id);
      if (message?.acts) rate(message, value);
    },
  };
};
