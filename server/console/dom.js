"use strict";
/* What all other files use: elements, numbers as text, errors at fields. The files are one script,
 * in the order in which server/http/api/console.c lists them. No file makes elements from text:
 * text from the server stays text. */

const $ = (id) => document.getElementById(id);

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

/* Makes an element: h("p", {class: "hint"}, "text", element, …) */
function h(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function svg(tag, properties = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), properties, children);
}

/* Sets the options, each as [value, text]. The chosen option stays chosen if it still exists. */
function setOptions(select, options, chosen = select.value) {
  select.replaceChildren(...options.map(([value, text]) => h("option", {value}, text)));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

function group(label, options) {
  return h("optgroup", {label}, ...options.map((name) => h("option", {value: name}, name)));
}

/* ---- Numbers as text ---- */

const round = (number) => Number(number.toPrecision(3)).toLocaleString("en");

function scaled(number, base, units) {
  let at = 0;
  while (number >= base && at < units.length - 1) {
    number /= base;
    at++;
  }
  return round(number) + (units[at] ? " " + units[at] : "");
}

const bytesText = (bytes) => scaled(bytes, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]);
const timeText = (seconds) => Number.isFinite(seconds)
  ? scaled(seconds * 1e6, 1000, ["µs", "ms", "s"]) : "–";

/* ---- Errors at fields ---- */

/* Shows an error at a field. The first element that describes the field holds the text. */
function showError(field, text) {
  const [id] = field.getAttribute("aria-describedby").split(" ");
  $(id).textContent = text;
  field.setAttribute("aria-invalid", "true");
  if (field.closest("details")) field.closest("details").open = true;
  field.focus();
  $(id).scrollIntoView({block: "nearest"});
}

function clearErrors(form) {
  for (const field of form.querySelectorAll("[aria-invalid]"))
    field.removeAttribute("aria-invalid");
  for (const text of form.querySelectorAll(".error")) text.textContent = "";
}
