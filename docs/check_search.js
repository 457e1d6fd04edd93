// SPDX-License-Identifier: Apache-2.0
// Asks the search of the built site what people type, with the site's own code: node docs/check_search.js docs/_build
// The page of each question must be among the first three results.
"use strict";
const { readFileSync } = require("fs");
const { join } = require("path");
const vm = require("vm");

const site = process.argv[2];
const questions = JSON.parse(readFileSync(join(__dirname, "search_questions.json")));
const nothing = () => {};
const context = vm.createContext({
  console,
  localStorage: { setItem: nothing },
  document: { getElementById: () => null, addEventListener: nothing, documentElement: { dataset: {} } },
  DOCUMENTATION_OPTIONS: {},
  SPHINX_HIGHLIGHT_ENABLED: false,
  _removeChildren: nothing,
  _: (text) => text,
  _ready: nothing,
});
context.window = context;
for (const name of ["_static/language_data.js", "_static/searchtools.js"])
  vm.runInContext(readFileSync(join(site, name), "utf8"), context);
context.index = readFileSync(join(site, "searchindex.js"), "utf8").replace(/^Search\.setIndex\(/, "").replace(/\)\s*$/, "");
vm.runInContext("Search._index = JSON.parse(index)", context);
context.questions = questions;
const found = vm.runInContext(
  "Object.keys(questions).map((text) => Search._performSearch(...Search._parseQuery(text)))", context);

const failed = [];
Object.entries(questions).forEach(([text, page], place) => {
  const pages = [...new Set(found[place].reverse().map((result) => result[0]))].slice(0, 3);
  if (!pages.includes(page)) failed.push(`${text}: ${pages.join(", ") || "nothing"} instead of ${page}`);
});
if (failed.length) {
  console.error(failed.join("\n"));
  process.exit(1);
}
console.log(`${Object.keys(questions).length} questions find their page among the first three`);
