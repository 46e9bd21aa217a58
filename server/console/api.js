/* Sends requests to the server, and shows its state: it may be away, or require a token. */

class Refusal extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

const connection = {state: "waiting", since: null};

function setState(state, text) {
  if (connection.state === state && state !== "refused") return;
  connection.since = new Date();
  connection.state = state;
  $("state").dataset.state = state;
  $("state").textContent = text;
}

/* Returns the server's answer. Throws a Refusal with the text of the server's error, or with status
 * 0 if the server does not answer. */
async function ask(method, path, body, {headers = {}, seconds = 10} = {}) {
  const token = sessionStorage.getItem("quantd-token");
  if (token) headers = {...headers, Authorization: "Bearer " + token};
  let answer;
  try {
    answer = await fetch(path, {method, body, headers, cache: "no-cache", credentials: "omit",
                                signal: AbortSignal.timeout(seconds * 1000)});
  } catch (error) {
    const why = error.name === "TimeoutError" ? "no answer within " + seconds + " s"
      : "no connection";
    const since = new Date().toLocaleTimeString("en-GB");
    setState("away", "The server has not answered since " + since + " (" + why +
                     "); this page goes on asking.");
    throw new Refusal(0, "The server does not answer (" + why + ").");
  }
  if (answer.ok) {
    if (connection.state === "away" && connection.since) setState("ready", "The server is back.");
    else setState("ready", "The server answers.");
    return answer;
  }
  const text = await answer.text().catch(() => "");
  let why = text;
  try {
    why = JSON.parse(text).error ?? text;
  } catch { /* not an error of quantd; perhaps a proxy's */ }
  if (answer.status === 401) askForToken(why);
  else setState("ready", "The server answers.");
  throw new Refusal(answer.status, why || "HTTP status " + answer.status);
}

const askJson = async (method, path, body) => (await ask(method, path, body)).json();

const modelPath = (name, version) =>
  "/v2/models/" + encodeURIComponent(name) + (version ? "/versions/" + version : "");

function askForToken(why) {
  if (connection.state === "refused") return;
  setState("refused", "The server requires a token.");
  $("token-box").open = true;
  $("token-error").textContent = sessionStorage.getItem("quantd-token") ? why : "";
  $("token").focus();
}

function startTokens(onToken) {
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem("quantd-token", $("token").value.trim());
    $("token").value = "";
    clearErrors($("token-form"));
    $("token-box").open = false;
    setState("waiting", "Connecting …");
    onToken();
  });
}
