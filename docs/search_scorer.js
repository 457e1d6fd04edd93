// SPDX-License-Identifier: Apache-2.0
// Scores of the site's search. Answers to questions come first, then pages on a subject; decisions, notebooks and the pages
// for users of another program, which mention everything, come last.
var Scorer = {
  score: ([page, , , , score]) => {
    if (page.startsWith("decisions/") || page.startsWith("migration/") || page.startsWith("notebooks/")) return score - 12;
    if (page.startsWith("how_to/")) return score + 4;
    return page.includes("/") ? score : score + 3;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
