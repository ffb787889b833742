// Runs before anything else on the page: notes everything that goes wrong.
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message || event.target)), true);
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
for (const kind of ["error", "warn"]) console[kind] = (...words) => problems.push(words.join(" "));
