// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package templates

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
)

// FieldChange is the change of a field.
type FieldChange struct {
	// Path is the path of the field.
	Path string `json:"path"`
	// Before and After are the values as JSON; empty if there is none.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// maskedValue replaces the values in a Secret.
const maskedValue = `"***"`

// compareFields returns the fields that differ between two objects, sorted by path. It does not return
// the values in Secrets.
func compareFields(kind string, before, after map[string]any) []FieldChange {
	var changes []FieldChange
	collectFields("", before, after, func(path string, before, after any) {
		changes = append(changes, FieldChange{
			Path: path, Before: encode(kind, path, before), After: encode(kind, path, after),
		})
	})
	return changes
}

// collectFields calls add for each value that differs. It descends into maps and lists that exist on both
// sides.
func collectFields(path string, before, after any, add func(path string, before, after any)) {
	if reflect.DeepEqual(before, after) {
		return
	}
	oldMap, isOldMap := before.(map[string]any)
	newMap, isNewMap := after.(map[string]any)
	if isOldMap && isNewMap {
		keys := slices.Collect(maps.Keys(oldMap))
		keys = slices.AppendSeq(keys, maps.Keys(newMap))
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			collectFields(childPath(path, key), oldMap[key], newMap[key], add)
		}
		return
	}
	oldList, isOldList := before.([]any)
	newList, isNewList := after.([]any)
	if isOldList && isNewList {
		for i := range max(len(oldList), len(newList)) {
			collectFields(path+"["+strconv.Itoa(i)+"]", element(oldList, i), element(newList, i), add)
		}
		return
	}
	add(path, before, after)
}

func element(list []any, index int) any {
	if index < len(list) {
		return list[index]
	}
	return nil
}

var plainKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func childPath(path, key string) string {
	switch {
	case !plainKey.MatchString(key):
		return path + "[" + key + "]"
	case path == "":
		return key
	}
	return path + "." + key
}

func encode(kind, path string, value any) string {
	if value == nil {
		return ""
	}
	if isData := len(path) >= len("data") && path[:len("data")] == "data"; kind == "Secret" && isData {
		return maskedValue
	}
	// Encoding decoded JSON cannot fail.
	encoded, _ := json.Marshal(value)
	return string(encoded)
}
