/* Shows a request as a program. The program reads the token from the environment, because a token
 * must not be pasted. */

const shellQuoted = (text) => "'" + text.replaceAll("'", "'\\''") + "'";

/* Returns a literal: the text unchanged between `mark`s if the language permits that, otherwise a
 * string with JSON's escapes, which Python and JavaScript read alike. */
const literal = (text, mark, special) => (special.test(text) ? JSON.stringify(text)
  : mark + text + mark);

const PROGRAMS = {
  curl(url, {json, headers, binary}, hasToken) {
    const lines = ["curl -s " + shellQuoted(url)];
    for (const [name, value] of Object.entries(headers))
      lines.push("-H '" + name + ": " + value + "'");
    if (hasToken) lines.push('-H "Authorization: Bearer $QUANTD_TOKEN"');
    lines.push(binary ? "--data-binary @request.bin" : "-d " + shellQuoted(json));
    return lines.join(" \\\n  ") + "\n";
  },

  python(url, {json, headers, binary}, hasToken) {
    const body = binary ? 'open("request.bin", "rb").read()'
      : literal(json, "'''", /'''|\\|'$/) + ".encode()";
    const list = Object.entries(headers).map(([name, value]) =>
      JSON.stringify(name) + ": " + JSON.stringify(value));
    if (hasToken) list.push('"Authorization": "Bearer " + os.environ["QUANTD_TOKEN"]');
    return "import json" + (hasToken ? ", os" : "") + ", urllib.request\n\n" +
      "body = " + body + "\n" +
      "request = urllib.request.Request(" + JSON.stringify(url) + ", body, {\n    " +
      list.join(",\n    ") + "})\n" +
      "answer = json.load(urllib.request.urlopen(request))\n" +
      'for output in answer["outputs"]:\n' +
      '    print(output["name"], output["datatype"], output["shape"], output["data"])\n';
  },

  javascript(url, {json, headers, binary}, hasToken) {
    const body = binary ? 'await (await import("node:fs/promises")).readFile("request.bin")'
      : literal(json, "`", /[`\\]|\$\{/);
    const list = Object.entries(headers).map(([name, value]) =>
      JSON.stringify(name) + ": " + JSON.stringify(value));
    if (hasToken) list.push('"Authorization": "Bearer " + process.env.QUANTD_TOKEN');
    return "const body = " + body + ";\n" +
      "const answer = await fetch(" + JSON.stringify(url) +
      ', {method: "POST", body, headers: {\n  ' +
      list.join(",\n  ") + "}});\n" +
      "const {outputs} = await answer.json();\n" +
      "for (const {name, datatype, shape, data} of outputs)\n" +
      "  console.log(name, datatype, shape, data);\n";
  },
};
