# Writes software bills of materials (SPDX 2.3, JSON). To be sourced, by hack/images.sh and hack/dist.sh.
#
# The caller sets: `sources`, the files of the distribution that are in it; `created`, a time; `revision`, a commit; SOURCE, an
# address.

package_of() { # NAME
  case $1 in
    manager) echo trishanku-manager ;;
    *) echo "$1" ;;
  esac
}

# Lines: kind, name, version, license, address, SHA-256.
components() { # NAME
  local name=$1 package packages=()
  packages=("$(package_of "$name")")
  [[ $name != trishanku ]] || packages+=(gitcd)
  for package in "${packages[@]}"; do
    cargo tree --locked --package "$package" --edges normal --prefix none --no-dedupe --format '{p}|{l}|{r}'
  done | sort -u | awk -F'|' '
    FNR == NR { if ($1 != "") sum[$1] = $2; next }
    { split($1, words, " "); version = substr(words[2], 2); key = words[1] " " version
      print "cargo|" words[1] "|" version "|" $2 "|" $3 "|" sum[key] }' \
    <(awk '/^name = / { gsub(/"/, "", $3); name = $3 } /^version = / { gsub(/"/, "", $3); version = $3 }
           /^checksum = / { gsub(/"/, "", $3); print name " " version "|" $3 }' Cargo.lock) -
  # Files of the distribution, by their packages.
  if ((${#sources[@]})) && command -v dpkg-query >/dev/null; then
    printf '%s\n' "${sources[@]}" | sort -u | while read -r file; do
      dpkg-query --search "$file" "$(readlink -f "$file")" "/usr$file" 2>/dev/null || :
    done | sed -n 's/^\([^ ,:]*\).*: .*/\1/p' | sort -u | while read -r package; do
      dpkg-query --show --showformat 'deb|${Package}|${Version}||${Homepage}|\n' "$package"
    done
  fi
}

sbom() { # NAME REFERENCE PURPOSE
  components "$1" | sort -u | awk -F'|' -v name="$1" -v reference="$2" -v purpose="$3" -v tool="${0##*/}" -v machine="$(uname -m)" -v created="$created" -v source="$SOURCE" -v revision="$revision" '
    function text(value) { gsub(/\\/, "\\\\", value); gsub(/"/, "\\\"", value); return "\"" value "\"" }
    function id(kind, name, version) { version = kind "-" name "-" version; gsub(/[^A-Za-z0-9.-]/, "-", version); return "SPDXRef-" version }
    # Cargo used to separate alternative licences with a slash.
    function licence(value) { gsub(/\//, " OR ", value); gsub(/  +/, " ", value); return value == "" ? "NOASSERTION" : value }
    BEGIN {
      print "{\n  \"spdxVersion\": \"SPDX-2.3\",\n  \"dataLicense\": \"CC0-1.0\",\n  \"SPDXID\": \"SPDXRef-DOCUMENT\","
      print "  \"name\": " text(reference) ",\n  \"documentNamespace\": " text(source "/sbom/" tolower(purpose) "/" name "-" machine "/" revision) ","
      print "  \"creationInfo\": {\"created\": " text(created) ", \"creators\": [" text("Tool: hack/" tool) "]},"
      print "  \"packages\": ["
      print "    {\"SPDXID\": \"SPDXRef-root\", \"name\": " text(reference) ", \"downloadLocation\": \"NOASSERTION\", \"filesAnalyzed\": false, \"primaryPackagePurpose\": " text(purpose) "}"
      relations = "    {\"spdxElementId\": \"SPDXRef-DOCUMENT\", \"relationshipType\": \"DESCRIBES\", \"relatedSpdxElement\": \"SPDXRef-root\"}"
    }
    {
      purl = "pkg:" ($1 == "deb" ? "deb/debian/" : "cargo/") $2 "@" $3
      gsub(/\+/, "%2B", purl)
      printf "    ,{\"SPDXID\": %s, \"name\": %s, \"versionInfo\": %s, \"downloadLocation\": %s, \"filesAnalyzed\": false, \"licenseDeclared\": %s", \
        text(id($1, $2, $3)), text($2), text($3), text($5 == "" ? "NOASSERTION" : $5), text(licence($4))
      if ($6 != "") printf ", \"checksums\": [{\"algorithm\": \"SHA256\", \"checksumValue\": %s}]", text($6)
      printf ", \"externalRefs\": [{\"referenceCategory\": \"PACKAGE-MANAGER\", \"referenceType\": \"purl\", \"referenceLocator\": %s}]}\n", text(purl)
      relations = relations "\n    ,{\"spdxElementId\": \"SPDXRef-root\", \"relationshipType\": \"CONTAINS\", \"relatedSpdxElement\": " text(id($1, $2, $3)) "}"
    }
    END { print "  ],\n  \"relationships\": [\n" relations "\n  ]\n}" }'
}
