// Puts the chat page into a site: a round button, and a panel with the page in a frame. The site hands a token by the
// attribute data-token of the script, which may change at any time. It goes to the frame alone, and only to its origin.
(() => {
  const script = document.currentScript;
  const page = new URL("../chat?embed", script.src);
  const label = script.dataset.label ?? "{{title}}";
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(`
    :host { all: initial; position: fixed; inset-block-end: 1rem; inset-inline-end: 1rem; z-index: 2147483000; color-scheme: light dark; }
    button {
      display: grid; place-items: center; width: 3.5rem; height: 3.5rem; margin-inline-start: auto; padding: 0; border: 0;
      border-radius: 50%; background: ${"{{accent}}"}; color: ${"{{on_accent}}"}; box-shadow: 0 2px 12px rgb(0 0 0 / 30%); cursor: pointer;
    }
    button:focus-visible { outline: 3px solid ${"{{on_accent}}"}; outline-offset: -6px; }
    svg { width: 1.75rem; height: 1.75rem; fill: none; stroke: currentColor; stroke-width: 2; stroke-linecap: round; stroke-linejoin: round; }
    button[aria-expanded="true"] .open, button[aria-expanded="false"] .close { display: none; }
    iframe {
      display: block; width: min(25rem, calc(100vw - 2rem)); height: min(40rem, calc(100dvh - 6.5rem)); margin-block-end: .75rem;
      border: 1px solid rgb(128 128 128 / 35%); border-radius: 1rem; background: Canvas; box-shadow: 0 8px 32px rgb(0 0 0 / 25%);
    }
    iframe[hidden] { display: none; }
  `);
  const host = document.createElement("div");
  const shadow = host.attachShadow({ mode: "open" });
  shadow.adoptedStyleSheets = [sheet];
  shadow.innerHTML = `
    <iframe hidden allow="clipboard-write"></iframe>
    <button type="button" aria-expanded="false">
      <svg class="open" viewBox="0 0 24 24" aria-hidden="true"><path d="M5 4h14a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-7l-5 4v-4H5a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2z"/></svg>
      <svg class="close" viewBox="0 0 24 24" aria-hidden="true"><path d="M6 6l12 12M18 6L6 18"/></svg>
    </button>`;
  const frame = shadow.querySelector("iframe"), button = shadow.querySelector("button");
  frame.title = label;
  button.setAttribute("aria-label", label);

  const show = (open) => {
    if (open && !frame.src) frame.src = page.href;
    frame.hidden = !open;
    button.setAttribute("aria-expanded", String(open));
    (open ? frame : button).focus();
  };
  button.addEventListener("click", () => show(frame.hidden));
  shadow.addEventListener("keydown", ({ key }) => { if (key === "Escape" && !frame.hidden) show(false); });

  const handToken = () => frame.contentWindow?.postMessage({ askfirst: "user", token: script.dataset.token ?? "" }, page.origin);
  addEventListener("message", ({ source, origin, data }) => {
    if (source !== frame.contentWindow || origin !== page.origin) return;
    if (data?.askfirst === "ready") handToken();
    if (data?.askfirst === "close") show(false);
  });
  new MutationObserver(() => { if (frame.src) handToken(); }).observe(script, { attributeFilter: ["data-token"] });

  const put = () => document.body.append(host);
  if (document.body) put(); else addEventListener("DOMContentLoaded", put);
})();
