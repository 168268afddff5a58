#!/usr/bin/env bash
# The steps of action.yml. Inputs come as environment variables, and no step evaluates one.
set -euo pipefail

readonly MARK='<!-- kquota review -->'
readonly COMMENT="$RUNNER_TEMP/kquota-review.md"

install() {
  if [[ -n $PACKAGE ]]; then
    python -m pip install --disable-pip-version-check --quiet -- "$PACKAGE"
  fi
}

# A file that is not there yet, or no longer, has no quotas.
quotas() {
  if [[ -s $1 ]]; then
    cp -- "$1" "$2"
  else
    echo '[]' > "$2"
  fi
}

# The suffix of a file name: some formats are recognised by it.
suffix() {
  local name=${1##*/}
  if [[ $name =~ (\.[[:alnum:]]+)$ ]]; then echo "${BASH_REMATCH[1]}"; fi
}

review() {
  local folder code=0 words base head
  folder=$(mktemp -d "$RUNNER_TEMP/kquota.XXXXXX")
  base="$folder/base$(suffix "$BASE")" head="$folder/head$(suffix "$HEAD")"
  quotas "$BASE" "$base"
  quotas "$HEAD" "$head"
  words=(--base "$base" --head "$head" "--since=$SINCE" "--budget-delay=$BUDGET")
  if [[ -n $TABLES ]]; then words+=("--tables=$TABLES"); fi
  if [[ -n $SETTINGS ]]; then words+=("--config=$SETTINGS"); fi
  kquota review "${words[@]}" > "$COMMENT" || code=$?
  case $code in
    0) echo verdict=harmless ;;
    2) echo verdict=person ;;
    3) echo verdict=harm ;;
    *) echo verdict=error ;;
  esac >> "$GITHUB_OUTPUT"
  cat -- "$COMMENT" >> "$GITHUB_STEP_SUMMARY"
}

# Writes one comment: a new one, or the one of an earlier push. Nothing to report makes no new comment.
comment() {
  local body="$RUNNER_TEMP/kquota-comment.md" id
  # Anyone can write the mark, so only a comment of our own login is updated.
  if ! id=$(gh api --paginate "repos/$REPOSITORY/issues/$NUMBER/comments?per_page=100" --jq \
    '.[] | select(.user.login == env.AUTHOR and (.body | startswith("'"$MARK"'"))) | .id'); then
    echo '::warning::the comments of the pull request cannot be read, so none was written: see the summary'
    return
  fi
  id=${id%%$'\n'*}
  if [[ ! -s $COMMENT ]]; then
    if [[ -z $id ]]; then return; fi
    printf '%s\n\nThis pull request no longer changes a quota.\n' "$MARK" > "$body"
  else
    { printf '%s\n\n' "$MARK"; cat -- "$COMMENT"; } > "$body"
  fi
  if [[ -n $id ]]; then
    gh api --silent --method PATCH "repos/$REPOSITORY/issues/comments/$id" --field "body=@$body"
  else
    gh api --silent --method POST "repos/$REPOSITORY/issues/$NUMBER/comments" --field "body=@$body"
  fi || echo '::warning::the comment was not written: a pull request from a fork has no right to; see the summary'
}

verdict() {
  case $VERDICT in
    harmless) echo 'no harm in the recorded traffic' ;;
    person)
      echo '::warning::a person must decide about this change of quotas'
      if [[ $FAIL_ON == person ]]; then exit 1; fi
      ;;
    harm)
      echo '::error::this change of quotas adds more delay than the budget allows'
      exit 1
      ;;
    *)
      echo '::error::kquota review failed: see its error in the step Review'
      exit 1
      ;;
  esac
}

case ${1:-} in
  install | review | comment | verdict) "$1" ;;
  *) echo "steps.sh: expected install, review, comment or verdict" >&2; exit 2 ;;
esac
