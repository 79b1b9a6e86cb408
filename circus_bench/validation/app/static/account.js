// Signing in and out. The token of a personal link stands behind the '#', so that it is in no server's log.

export async function post(path, body, signal) {
  const csrf = document.querySelector("meta[name=csrf]").content;
  const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
  return fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
}

async function signIn(form) {
  const problem = document.getElementById("problem");
  problem.textContent = "";
  try {
    const answer = await post("/sign-in", { token: form.token.value });
    const content = await answer.json();
    if (answer.ok) location.replace(content.to);
    else problem.textContent = content.error;
  } catch {
    problem.textContent = "The network is away; try again.";
  }
}

const form = document.getElementById("sign-in");
form?.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(form);
});
if (form && location.hash.length > 1) {
  form.token.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname);
  signIn(form);
}

document.getElementById("sign-out")?.addEventListener("click", async () => {
  const answer = await post("/sign-out", {});
  location.assign((await answer.json()).to);
});
