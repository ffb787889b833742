//! The bill of materials of the binary: every package that is in it, as CycloneDX 1.5.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::run::{cargo_command, output};

/// Lists what `posse-cli` is made of on `target`: not tests, not build scripts, not macros' own dependencies.
pub(super) fn sbom(root: &Path, target: &str) -> Result<String, String> {
    let mut metadata = cargo_command(root);
    metadata.args(["metadata", "--format-version=1", "--locked", "--filter-platform", target]);
    let metadata: Value = serde_json::from_str(&output(&mut metadata)?).map_err(|error| error.to_string())?;
    let packages: BTreeMap<&str, &Value> =
        array(&metadata["packages"]).iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).iter().map(|node| (text(&node["id"]), node)).collect();
    let (start, _) = packages
        .iter()
        .find(|(_, package)| package["name"] == "posse-cli")
        .ok_or("cargo metadata does not know posse-cli")?;
    let mut seen = BTreeSet::from([*start]);
    let mut left = vec![*start];
    while let Some(id) = left.pop() {
        for dependency in array(&nodes[id]["deps"]) {
            let is_normal = array(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let id = text(&dependency["pkg"]);
            if is_normal && !is_macro(packages[id]) && seen.insert(id) {
                left.push(id);
            }
        }
    }
    let lock = std::fs::read_to_string(root.join("Cargo.lock")).map_err(|error| error.to_string())?;
    let checksums = checksums(&lock);
    let component = |id: &&str| component(packages[*id], &checksums);
    let components: Vec<Value> = seen.iter().filter(|id| *id != start).map(component).collect();
    let document = json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component(start) },
        "components": components,
    });
    Ok(serde_json::to_string_pretty(&document).expect("keys are texts") + "\n")
}

fn component(package: &Value, checksums: &BTreeMap<(&str, &str), &str>) -> Value {
    let (name, version) = (text(&package["name"]), text(&package["version"]));
    let purl = format!("pkg:cargo/{name}@{version}");
    let kind = if name == "posse-cli" { "application" } else { "library" };
    let mut component =
        json!({ "type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl });
    if let Some(licence) = package["license"].as_str() {
        // Old packages write a slash where SPDX has a word.
        component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
    }
    if let Some(sum) = checksums.get(&(name, version)) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    component
}

fn is_macro(package: &Value) -> bool {
    array(&package["targets"]).iter().any(|target| array(&target["kind"]).contains(&json!("proc-macro")))
}

/// The checksums in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<(&str, &str), &str> {
    let field = |package: &'_ str, key: &str| -> Option<(usize, usize)> {
        let start = package.find(&format!("\n{key} = \""))? + key.len() + 5;
        Some((start, start + package[start..].find('"')?))
    };
    let packages = lock.split("[[package]]").filter_map(|package| {
        let at = |key| field(package, key).map(|(from, to)| &package[from..to]);
        Some(((at("name")?, at("version")?), at("checksum")?))
    });
    packages.collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_found_by_name_and_version() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ff\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\n";
        assert_eq!(checksums(lock), BTreeMap::from([(("a", "1.0.0"), "ff")]));
    }
}
