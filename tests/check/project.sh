#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# check.project: the texts beside the sources are true. The workflow runs the README's two commands
# word for word; the texts of .github and src/package point at files that exist; the changelog has the version.
#
#   project.sh <source root> <version>
set -u
cd "$1" || exit 1
version=$2
failed=0

say() {
    echo "$1" >&2
    failed=1
}

# The first shell block of README.md, less comments, and the commands of the workflow.
commands() {
    awk '/^```sh$/ { inside = 1; next } /^```$/ { if (inside) exit } inside' README.md | sed -e 's/ *#.*//' -e '/^$/d'
}
runs() {
    sed -n 's/^ *run: //p' .github/workflows/ci.yml
}
[ "$(commands | wc -l)" = 2 ] || say "README.md's first shell block has other than two commands: $(commands)"
diff <(commands) <(runs) || say "above: < commands of README.md, > of .github/workflows/ci.yml"
if python3 -c 'import yaml' 2>/dev/null; then
    python3 -c 'import yaml; jobs = yaml.safe_load(open(".github/workflows/ci.yml"))["jobs"]
for name, job in jobs.items():
    assert job["runs-on"] and job["steps"] and job["timeout-minutes"], name' || say "ci.yml is no workflow"
else
    echo "no Python module yaml: the workflow's form was not looked at"
fi

links=0
for text in .github/*.md src/package/*.md; do
    while IFS= read -r path; do
        links=$((links + 1))
        [ -e "$(dirname "$text")/$path" ] || say "$text points at '$path', which does not exist"
    done < <(grep -oE '\]\([^)#:]+\)' "$text" | sed -e 's/^](//' -e 's/)$//')
done
[ "$links" -ge 20 ] || say "only $links links were found"

newest=$(sed -n 's/^## \([0-9][0-9.]*\) (.*/\1/p' src/package/CHANGELOG.md | head -1)
[ "$newest" = "$version" ] || say "the changelog's newest version is '$newest', the project's $version"
exit $failed
