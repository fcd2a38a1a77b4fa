// The tools that ran before an answer: one line, which opens.

import { make } from "./make.js";

// `list_invoices` reads "List invoices".
const nameOf = (tool) => {
  const words = tool.replaceAll(/[_-]+/g, " ").trim();
  return words.charAt(0).toUpperCase() + words.slice(1);
};

export const stepsOf = ({ tools }, texts) => {
  const element = make("li", "steps"), details = make("details"), list = make("ol");
  details.append(make("summary", "", texts.steps.replace("{n}", tools.length)), list);
  list.append(...tools.map(({ name, failed }) => {
    const step = make("li", failed ? "failed" : "", nameOf(name));
    if (failed) step.append(make("span", "told", texts.failed));
    return step;
  }));
  element.append(details);
  return element;
};
