// Writes the part of GitHub's OpenAPI description that is spoken to: the whole of it takes a mock a minute to read.
//
//   node select.mjs DESCRIPTION > PART

import { readFileSync } from 'node:fs';

const SPOKEN = [
  ['/user', 'get'],
  ['/user/repos', 'post'],
  ['/orgs/{org}/repos', 'post'],
  ['/repos/{owner}/{repo}', 'get', 'patch', 'delete'],
  ['/repos/{owner}/{repo}/topics', 'put'],
  ['/repos/{owner}/{repo}/branches/{branch}', 'get'],
];

const whole = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const part = { openapi: whole.openapi, info: whole.info, servers: whole.servers, paths: {}, components: {} };
for (const [path, ...methods] of SPOKEN) {
  part.paths[path] = {};
  for (const method of methods) {
    const found = whole.paths[path]?.[method];
    if (!found) throw new Error(`the description has no ${method} of ${path}`);
    part.paths[path][method] = found;
    // Of every GET, as GitHub's words on conditional requests have it; the description has it for some.
    if (method === 'get') found.responses['304'] ??= { description: 'Not modified' };
  }
}
// And whatever that refers to.
const seen = new Set();
const follow = (value) => {
  if (value === null || typeof value !== 'object') return;
  const reference = value.$ref;
  if (typeof reference === 'string' && !seen.has(reference)) {
    seen.add(reference);
    const [, , sort, name] = reference.split('/');
    part.components[sort] ??= {};
    part.components[sort][name] = whole.components[sort][name];
    follow(part.components[sort][name]);
  }
  Object.values(value).forEach(follow);
};
follow(part.paths);
process.stdout.write(JSON.stringify(part));
