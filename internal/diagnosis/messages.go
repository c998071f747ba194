// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"fmt"
	"strings"
	"time"

	"github.com/nslifecycle/nslifecycle/internal/printable"
)

// Messages of the DeletionBlocked and InitializationBlocked conditions with status False.
const (
	messageDeletionProgressing       = "The deletion is making progress again"
	messageInitializationProgressing = "The initialization is making progress again"
	messageInitializationCompleted   = "The initialization is complete"
	messageNamespaceDeleted          = "The namespace is being deleted"
)

// blockedMessageEnd returns the end of the message of a condition with status True. It contains the
// time of the diagnosis, because findings contain relative times.
func blockedMessageEnd(namespace string, moreFindings int, now time.Time) string {
	end := fmt.Sprintf(" (as of %s)", FormatTime(now))
	if moreFindings > 0 {
		end += "; and " + printable.Count(moreFindings, "more finding")
	}
	return end + "; for details, run: kubectl nslifecycle explain " + namespace
}

// note joins the parts of a finding into one line.
func note(message string, objects []string, remedy string) string {
	text := strings.TrimSuffix(message, ".")
	if len(objects) > 0 {
		text += "; objects: " + strings.Join(objects, ", ")
	}
	if remedy != "" {
		text += "; remedy: " + strings.TrimSuffix(remedy, ".")
	}
	return text
}
