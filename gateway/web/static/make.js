// An element with a class and words. Words are always text, never HTML.
export const make = (tag, name = "", words = "") => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (words) element.textContent = words;
  return element;
};
