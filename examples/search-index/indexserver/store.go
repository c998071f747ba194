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
	// indexFile says whose an index is. It lies in the directory of the index.
	indexFile = "index.json"
	// documentsDir holds a file for each document.
	documentsDir = "documents"
	// goneDir holds a file for each UID of which an index was deleted.
	goneDir = ".gone"
	// scratchPrefix begins what is not finished, or no longer needed.
	scratchPrefix = ".scratch-"
	// goneFor is how long a deletion is remembered: longer than any request can be on its way.
	goneFor = 24 * time.Hour
)

// What the store refuses. The errors that it returns say more.
var (
	// ErrInvalid says that a name, a UID or an ID is none.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound says that there is no such index.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that an index belongs to another Namespace.
	ErrConflict = errors.New("conflict")
	// ErrGone says that the index of this Namespace has been deleted.
	ErrGone = errors.New("gone")
)

// Store keeps indices in a directory, and all that is in them in memory as well. It is safe
// for use by several goroutines, but not by several processes.
type Store struct {
	dir string
	now func() time.Time

	mutex   sync.RWMutex
	indices map[string]*index
	// gone has the UIDs of which an index was deleted, and when.
	gone map[string]time.Time
}

// index is one index in memory.
type index struct {
	// record is what indexFile has. It does not count the documents.
	record    Index
	documents map[string]Document
	words     postings
}

// Open reads what is in a directory, which is made if it is not there.
func Open(dir string) (*Store, error) {
	return open(dir, time.Now)
}

func open(dir string, now func() time.Time) (*Store, error) {
	store := &Store{dir: dir, now: now, indices: map[string]*index{}, gone: map[string]time.Time{}}
	if err := os.MkdirAll(filepath.Join(dir, goneDir), 0o700); err != nil {
		return nil, fmt.Errorf("making the directory of the indices: %w", err)
	}
	if err := errors.Join(store.readGone(), store.readIndices()); err != nil {
		return nil, fmt.Errorf("reading the indices in %s: %w", dir, err)
	}
	return store, nil
}

// Create makes an index, or finds that it is there already.
func (s *Store) Create(name string, owner Owner) (created Index, isNew bool, err error) {
	if err := errors.Join(checkName("index", name), checkUID(owner.UID), checkNamespace(owner.Namespace)); err != nil {
		return Index{}, false, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if when, isGone := s.gone[owner.UID]; isGone {
		return Index{}, false, fmt.Errorf("%w: the index of namespace %q with UID %s was deleted at %s",
			ErrGone, owner.Namespace, owner.UID, when.Format(time.RFC3339))
	}
	if found, exists := s.indices[name]; exists {
		if found.record.Owner != owner {
			return Index{}, false, whyConflict(found)
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

// List returns all indices, by name.
func (s *Store) List() []Index {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	list := make([]Index, 0, len(s.indices))
	for _, name := range slices.Sorted(maps.Keys(s.indices)) {
		list = append(list, s.indices[name].describe())
	}
	return list
}

// Delete removes the index that a Namespace has under a name, if it has one. There will be
// none for that UID again.
func (s *Store) Delete(name, uid string) error {
	if err := errors.Join(checkName("index", name), checkUID(uid)); err != nil {
		return err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	found, exists := s.indices[name]
	if exists && found.record.Owner.UID != uid {
		return whyConflict(found)
	}
	if err := s.remember(uid); err != nil {
		return err
	}
	if !exists {
		return nil
	}
	// One rename, and it is gone; the rest is cleaning up, which a restart does as well.
	scratch := filepath.Join(s.dir, scratchPrefix+uid)
	if err := os.RemoveAll(scratch); err != nil {
		return err
	}
	if err := rename(filepath.Join(s.dir, name), scratch); err != nil {
		return err
	}
	delete(s.indices, name)
	return os.RemoveAll(scratch)
}

// Add puts a document into an index. It returns the ID, and whether there was no such
// document.
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

// Search returns the documents of an index that have every word of a query, the best ones
// first and no more of them than the limit. An empty query finds all.
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
	return nil, fmt.Errorf("%w: there is no index %q", ErrNotFound, name)
}

// remember keeps a UID from ever having an index again, and forgets those of long ago.
func (s *Store) remember(uid string) error {
	now := s.now().UTC()
	for old, when := range s.gone {
		if now.Sub(when) > goneFor {
			if err := os.Remove(s.gonePath(old)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			delete(s.gone, old)
		}
	}
	if _, isKnown := s.gone[uid]; isKnown {
		return nil
	}
	if err := writeJSON(s.gonePath(uid), now); err != nil {
		return err
	}
	s.gone[uid] = now
	return nil
}

func (s *Store) gonePath(uid string) string {
	return filepath.Join(s.dir, goneDir, uid+".json")
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

// score returns the documents that have every word of the query.
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

// unusedID is the number of documents, or the next one that is free: nothing is ever
// removed from an index but by its end.
func (i *index) unusedID() string {
	for n := len(i.documents) + 1; ; n++ {
		id := fmt.Sprintf("%08d", n)
		if _, isUsed := i.documents[id]; !isUsed {
			return id
		}
	}
}

func whyConflict(found *index) error {
	return fmt.Errorf("%w: index %q belongs to namespace %q with UID %s",
		ErrConflict, found.record.Name, found.record.Owner.Namespace, found.record.Owner.UID)
}

func checkName(what, name string) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("%w: %q is no name of a %s: use at most 127 lower case letters, digits and dashes, "+
			"with no dash at either end", ErrInvalid, name, what)
	}
	return nil
}

func checkNamespace(name string) error {
	return checkName("namespace", name)
}

func checkUID(uid string) error {
	if !uidPattern.MatchString(uid) {
		return fmt.Errorf("%w: %q is no UID of a namespace", ErrInvalid, uid)
	}
	return nil
}
