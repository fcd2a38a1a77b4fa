// Files that the person chooses, drops or pastes. Each is sent in pieces at once, and its message names it by a token.

import { make } from "./make.js";
import * as visit from "./visit.js";

const PIECE_BYTES = 128 * 1024;
const RETRY_AFTER_MS = [500, 1500, 4000];
const MEGABYTE = 1e6;

const at = (id) => document.getElementById(id);
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const named = (text, values) => text.replace(/\{(\w+)\}/g, (_, name) => values[name]);

// Gives the server's answer to one piece, or null without a connection.
const postPiece = async (file, query, begin, signal) => {
  try {
    const headers = { ...visit.headers(), "Content-Type": "application/octet-stream" };
    const body = file.slice(begin, begin + PIECE_BYTES);
    return await fetch(`chat/files?${new URLSearchParams(query)}`, { method: "POST", headers, body, signal });
  } catch {
    return null;
  }
};

// Gives the file as the server kept it. Throws the words that say why it did not.
const sendFile = async (file, id, { texts, signal, onProgress, onEnded }) => {
  const name = file.name.slice(0, 200) || "file";
  for (let begin = 0, failures = 0; !signal.aborted;) {
    const answer = await postPiece(file, { upload: id, at: begin, size: file.size, name }, begin, signal);
    const status = answer?.status ?? 0;
    if (status === 200 || status === 409) {
      const there = await answer.json();
      if (there.file) return there.file;
      begin = there.at;
      onProgress(begin / file.size);
      if (status === 200) { failures = 0; continue; }
    }
    if (status === 401) onEnded();
    if (status === 507) throw texts.no_room;
    if ((status >= 400 && status < 500 && status !== 409) || failures === RETRY_AFTER_MS.length) throw texts.no_answer;
    await wait(RETRY_AFTER_MS[failures]);
    failures += 1;
  }
  return null;
};

export const openFiles = ({ texts, freshId, sizeOf, onEnded }) => {
  const chosen = at("chosen"), input = at("file"), chat = at("conversation");
  const { largest, most } = document.body.dataset;
  const uploads = [];

  const faultOf = (file) => {
    if (uploads.length >= Number(most)) return named(texts.too_many, { n: most });
    if (!file.size) return texts.file_empty;
    return file.size > Number(largest) ? named(texts.too_large, { n: Number(largest) / MEGABYTE }) : "";
  };

  const fail = (upload, words) => {
    upload.told.textContent = words;
    upload.element.classList.add("failed");
    return null;
  };

  // Sends a file once more under the same id: what is there is not sent again.
  const start = (upload) => {
    upload.element.classList.remove("failed");
    upload.told.textContent = sizeOf(upload.file.size);
    upload.progress.hidden = false;
    const onProgress = (part) => { upload.progress.value = part; };
    upload.done = sendFile(upload.file, upload.id, { texts, signal: upload.stop.signal, onProgress, onEnded })
      .catch((words) => fail(upload, String(words)))
      .finally(() => { upload.progress.hidden = true; });
  };

  const elementOf = (upload, file) => {
    const element = make("li", "chosen"), remove = make("button", "remove", "×");
    remove.type = "button";
    remove.setAttribute("aria-label", named(texts.remove, { name: file.name }));
    remove.addEventListener("click", () => {
      upload.stop.abort();
      element.remove();
      if (uploads.includes(upload)) uploads.splice(uploads.indexOf(upload), 1);
      at("text").focus();
    });
    upload.progress.max = 1;
    element.append(make("span", "name", file.name), upload.told, upload.progress, remove);
    return element;
  };

  const choose = (files) => {
    for (const file of files) {
      const upload = { file, id: freshId(), stop: new AbortController(), told: make("span", "told"), progress: make("progress") };
      upload.element = elementOf(upload, file);
      upload.progress.hidden = true;
      chosen.append(upload.element);
      const fault = faultOf(file);
      if (fault) { fail(upload, fault); continue; }
      uploads.push(upload);
      start(upload);
    }
  };

  at("attach").addEventListener("click", () => input.click());
  input.addEventListener("change", () => {
    choose(input.files);
    input.value = ""; // so that the same file can be chosen once more
    at("text").focus();
  });
  at("text").addEventListener("paste", (event) => {
    if (!event.clipboardData.files.length) return;
    event.preventDefault();
    choose(event.clipboardData.files);
  });
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  chat.addEventListener("dragover", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    chat.classList.add("dropping");
  });
  chat.addEventListener("dragleave", (event) => {
    if (!chat.contains(event.relatedTarget)) chat.classList.remove("dropping");
  });
  chat.addEventListener("drop", (event) => {
    chat.classList.remove("dropping");
    if (!hasFiles(event)) return;
    event.preventDefault();
    choose(event.dataTransfer.files);
  });

  return {
    // The uploads of the next message. What was refused is told until then.
    take: () => {
      chosen.replaceChildren();
      return uploads.splice(0);
    },
    again: (upload) => { if (upload.element.classList.contains("failed")) start(upload); },
  };
};
