// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"

	"github.com/nslifecycle/nslifecycle/internal/knownwriters"
)

// renderControllers renders the table of the controllers that write into new namespaces.
func renderControllers() string {
	var out strings.Builder
	out.WriteString("# Controllers that write into new namespaces\n\n" +
		"[Other controllers](../controllers.md) explains the recommendations. The ServiceAccounts are those of a default " +
		"installation.\n\n" +
		"| Controller | Recommendation | ServiceAccounts | Holds `initialize` | Writes | At 403 | " +
		"At 429 without `Retry-After` | " +
		"A held write delays other namespaces |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n")
	var sources strings.Builder
	for _, writer := range knownwriters.All() {
		var accounts []string
		for _, account := range writer.ServiceAccounts {
			if account.Namespace == "" {
				accounts = append(accounts, code(account.Name)+" in any namespace")
			} else {
				accounts = append(accounts, code(strings.TrimPrefix(
					serviceaccount.MakeUsername(account.Namespace, account.Name), serviceaccount.ServiceAccountUsernamePrefix)))
			}
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", writer.Name, writer.Advice,
			strings.Join(accounts, ", "), yes(writer.HoldsVerb), cell(writer.Writes), cell(writer.OnForbidden),
			cell(writer.OnTooManyRequests), yes(writer.IsSerial))
		fmt.Fprintf(&sources, "- %s: %s\n", writer.Name, code(writer.Source))
	}
	out.WriteString("\n## Settings that exclude initializing namespaces\n\n")
	for _, writer := range knownwriters.All() {
		if writer.Setting != "" {
			fmt.Fprintf(&out, "- %s: %s\n", writer.Name, code(writer.Setting))
		}
	}
	return out.String() + "\n## Sources\n\n" + sources.String()
}

func yes(value bool) string {
	if value {
		return "yes"
	}
	return "no"
}
