// Copyright The nslifecycle Authors.
// SPDX-License-Identifier: Apache-2.0

package indexserver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// indexFile contains the Index. It is in the directory of the index.
	indexFile = "index.json"
	// documentsDir contains one file per document.
	documentsDir = "documents"
	// deletedDir contains one file per UID of a deleted index.
	deletedDir = ".deleted"
	// scratchPrefix is the name prefix of incomplete and deleted files and directories.
	scratchPrefix = ".scratch-"
	// deletionRetention is how long the server keeps the record of a deletion. It is longer than a
	// request can be delayed.
	deletionRetention = 24 * time.Hour
)

// Errors that the methods of Store wrap with details.
var (
	// ErrInvalid is returned if a name, UID or ID is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound is returned if the index does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned if the index belongs to another Namespace.
	ErrConflict = errors.New("conflict")
	// ErrDeleted is returned if the index of this Namespace was deleted.
	ErrDeleted = errors.New("deleted")
)

// Store keeps indices in a directory and in memory. It is safe for concurrent use within one
// process.
type Store struct {
	dir string
	now func() time.Time

	mutex   sync.RWMutex
	indices map[string]*index
	// deleted maps the UIDs of deleted indices to the times of their deletion.
	deleted map[string]time.Time
}

// index is an index in memory.
type index struct {
	// record is the content of indexFile. The field Documents is not set.
	record    Index
	documents map[string]Document
	words     postings
}

// Open reads the indices in a directory, and creates the directory if it does not exist.
func Open(dir string) (*Store, error) {
	return open(dir, time.Now)
}

func open(dir string, now func() time.Time) (*Store, error) {
	store := &Store{dir: dir, now: now, indices: map[string]*index{}, deleted: map[string]time.Time{}}
	if err := os.MkdirAll(filepath.Join(dir, deletedDir), 0o700); err != nil {
		return nil, fmt.Errorf("failed to create the directory of the indices: %w", err)
	}
	if err := errors.Join(store.readDeleted(), store.readIndices()); err != nil {
		return nil, fmt.Errorf("failed to read the indices in %s: %w", dir, err)
	}
	return store, nil
}

// Create creates an index, or returns the existing one.
func (s *Store) Create(name string, owner Owner) (created Index, isNew bool, err error) {
	err = errors.Join(checkName("index", name), checkUID(owner.UID), checkName("namespace", owner.Namespace))
	if err != nil {
		return Index{}, false, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if when, ok := s.deleted[owner.UID]; ok {
		return Index{}, false, fmt.Errorf("%w: the index of namespace %q with UID %s was deleted at %s",
			ErrDeleted, owner.Namespace, owner.UID, when.Format(time.RFC3339))
	}
	if found, ok := s.indices[name]; ok {
		if found.record.Owner != owner {
			return Index{}, false, conflictError(found)
		}
		return found.describe(), false, nil
	}
	made := newIndex(Index{Name: name, Owner: owner, Created: s.now().UTC()})
	if err := s.writeIndex(made); err != nil {
		return Index{}, false, err
	}
	s.indices[name] = made
	return made.describe(), true, nil
}

// Get returns an index.
func (s *Store) Get(name string) (Index, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, err := s.find(name)
	if err != nil {
		return Index{}, err
	}
	return found.describe(), nil
}

// List returns all indices, sorted by name.
func (s *Store) List() []Index {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	list := make([]Index, 0, len(s.indices))
	for _, name := range slices.Sorted(maps.Keys(s.indices)) {
		list = append(list, s.indices[name].describe())
	}
	return list
}

// Delete deletes the index of a Namespace. Until deletionRetention has passed, no index can be
// created for this UID.
func (s *Store) Delete(name, uid string) error {
	if err := errors.Join(checkName("index", name), checkUID(uid)); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, exists := s.indices[name]
	if exists && found.record.Owner.UID != uid {
		return conflictError(found)
	}
	if err := s.remember(uid); err != nil {
		return err
	}
	if !exists {
		return nil
	}
	// Renaming the directory deletes the index; Open completes an interrupted cleanup.
	scratch := filepath.Join(s.dir, scratchPrefix+uid)
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	// If the directory does not exist, a previous attempt failed after it renamed the directory.
	if err := rename(filepath.Join(s.dir, name), scratch); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	delete(s.indices, name)
	return os.RemoveAll(scratch)
}

// Add adds a document to an index. It returns the ID of the document, and whether the document is
// new.
func (s *Store) Add(name string, document Document) (id string, isNew bool, err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, err := s.find(name)
	if err != nil {
		return "", false, err
	}
	if document.ID == "" {
		document.ID = found.unusedID()
	} else if err := checkName("document", document.ID); err != nil {
		return "", false, err
	}
	before, exists := found.documents[document.ID]
	if document.Time.IsZero() {
		document.Time = s.now()
	}
	document.Time = document.Time.UTC()
	if exists && reflect.DeepEqual(before, document) {
		return document.ID, false, nil
	}
	path := filepath.Join(s.dir, name, documentsDir, document.ID+".json")
	if err := writeJSON(path, document); err != nil {
		return "", false, err
	}
	found.put(document)
	return document.ID, !exists, nil
}

// Search returns up to limit documents of an index that contain every word of the query, the best
// matches first. An empty query matches all documents.
func (s *Store) Search(name, query string, limit int) (Found, error) {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	found, err := s.find(name)
	if err != nil {
		return Found{}, err
	}
	hits := []Hit{}
	for id, score := range found.score(query) {
		hits = append(hits, Hit{Score: score, Document: found.documents[id]})
	}
	slices.SortFunc(hits, func(a, b Hit) int {
		return cmp.Or(cmp.Compare(b.Score, a.Score), b.Document.Time.Compare(a.Document.Time),
			strings.Compare(a.Document.ID, b.Document.ID))
	})
	return Found{Total: len(hits), Hits: hits[:min(limit, len(hits))]}, nil
}

func (s *Store) find(name string) (*index, error) {
	if found, exists := s.indices[name]; exists {
		return found, nil
	}
	return nil, fmt.Errorf("%w: index %q does not exist", ErrNotFound, name)
}

// remember records the UID of a deleted index, and drops expired records.
func (s *Store) remember(uid string) error {
	now := s.now().UTC()
	for old, when := range s.deleted {
		if now.Sub(when) > deletionRetention {
			if err := os.Remove(s.deletedPath(old)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			delete(s.deleted, old)
		}
	}
	if _, ok := s.deleted[uid]; ok {
		return nil
	}
	if err := writeJSON(s.deletedPath(uid), now); err != nil {
		return err
	}
	s.deleted[uid] = now
	return nil
}

func (s *Store) deletedPath(uid string) string {
	return filepath.Join(s.dir, deletedDir, uid+".json")
}

func newIndex(record Index) *index {
	return &index{record: record, documents: map[string]Document{}, words: postings{}}
}

func (i *index) describe() Index {
	described := i.record
	described.Documents = len(i.documents)
	return described
}

func (i *index) put(document Document) {
	if before, exists := i.documents[document.ID]; exists {
		i.words.remove(before)
	}
	i.documents[document.ID] = document
	i.words.add(document)
}

// score returns the scores of the documents that contain every word of the query.
func (i *index) score(query string) map[string]int {
	words := wordsOf(query)
	if len(words) > 0 {
		return i.words.find(words)
	}
	all := make(map[string]int, len(i.documents))
	for id := range i.documents {
		all[id] = 0
	}
	return all
}

// unusedID returns the next free number. Documents are never removed from an index.
func (i *index) unusedID() string {
	for n := len(i.documents) + 1; ; n++ {
		id := fmt.Sprintf("%08d", n)
		if _, ok := i.documents[id]; !ok {
			return id
		}
	}
}

func conflictError(found *index) error {
	return fmt.Errorf("%w: index %q belongs to namespace %q with UID %s",
		ErrConflict, found.record.Name, found.record.Owner.Namespace, found.record.Owner.UID)
}

func checkName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%w: %q is not a valid %s name: use at most 127 lowercase letters, digits and dashes, "+
			"without a dash at the beginning or end", ErrInvalid, name, what)
	}
	return nil
}

func checkUID(uid string) error {
	if !uidPattern.MatchString(uid) {
		return fmt.Errorf("%w: %q is not a valid UID", ErrInvalid, uid)
	}
	return nil
}
